# SPDX-License-Identifier: Apache-2.0
"""Attestation of SEV guests over the real API server: launcherctl sev, and what of it reaches a log."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from component_parts import VMI_YAML
from standin_agent import StandInAgent

from launcher.cli.client import Client
from launcher.cli.main import run
from launcher.errors import HostUnsupported

Ctl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def ctl(address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Ctl:
    monkeypatch.setenv("LAUNCHER_SERVER", address)
    with Client(address) as client:
        client.instances.create(VMI_YAML)

    def call(*arguments: str) -> tuple[int, str, str]:
        status = run(list(arguments))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def test_the_certificates_of_the_node(ctl: Ctl) -> None:
    status, out, _ = ctl("sev", "fetch-cert-chain")
    assert status == 0
    assert yaml.safe_load(out) == {
        "pdh": "UERI",
        "certChain": "Y2VydHM=",
        "cbitpos": 51,
        "reducedPhysBits": 1,
        "maxGuests": 0,
        "maxESGuests": 0,
    }


def test_a_node_without_sev_says_so(ctl: Ctl, agent: StandInAgent) -> None:
    agent.failure = HostUnsupported("AMD SEV", "QEMU does not support SEV guest", hint="use another node")
    status, out, err = ctl("sev", "fetch-cert-chain")
    assert (status, out) == (4, "")
    assert "AMD SEV" in err
    assert "QEMU does not support SEV guest" in err


def test_a_session_is_read_from_files(ctl: Ctl, agent: StandInAgent, tmp_path: Path) -> None:
    session, certificate = tmp_path / "session.b64", tmp_path / "godh.b64"
    session.write_text("c2Vzc2lv\nbg==\n")
    certificate.write_text("Y2VydA==\n")
    status, out, _ = ctl("sev", "setup", "demo", "--session", str(session), "--dh-cert", str(certificate))
    assert (status, out) == (0, "virtualmachineinstance.kubevirt.io/demo got its session\n")
    security = agent.instances["default", "demo"].spec.domain.launch_security
    assert security is not None
    assert security.sev is not None
    assert (security.sev.session, security.sev.dh_cert) == ("c2Vzc2lvbg==", "Y2VydA==")


def test_a_measurement(ctl: Ctl) -> None:
    status, out, _ = ctl("sev", "query-measurement", "vmi/demo", "-o", "json")
    assert status == 0
    shown = json.loads(out)
    assert (shown["measurement"], shown["apiMajor"], shown["apiMinor"]) == ("bWVhc3VyZWQ=", 1, 51)
    assert ctl("sev", "query-measurement", "nobody")[0] == 3


def test_a_secret_reaches_the_agent_and_no_log(
    ctl: Ctl, agent: StandInAgent, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    header, secret = tmp_path / "header", tmp_path / "secret"
    header.write_text("aGVhZGVy")
    secret.write_text("c2VjcmV0")
    arguments = ("--header", str(header), "--secret", str(secret))
    status, out, err = ctl("sev", "inject-secret", "demo", *arguments)
    assert status == 0
    assert agent.secrets == {("default", "demo"): ("aGVhZGVy", "c2VjcmV0")}
    agent.failure = HostUnsupported("AMD SEV", "no")
    failed = ctl("sev", "inject-secret", "demo", *arguments)
    assert failed[0] == 4
    calls = [record for record in caplog.records if "InjectSevSecret" in str(vars(record))]
    assert calls
    told = "".join(str(vars(record)) for record in caplog.records) + out + err + "".join(map(str, failed))
    assert "c2VjcmV0" not in told
    assert "aGVhZGVy" not in told


def test_a_file_that_is_no_text_is_refused_before_anything_is_sent(
    ctl: Ctl, agent: StandInAgent, tmp_path: Path
) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\x00")
    status, _, err = ctl("sev", "inject-secret", "demo", "--header", str(binary), "--secret", str(binary))
    assert status == 2
    assert "not base64 text" in err
    assert agent.secrets == {}

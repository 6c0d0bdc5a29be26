# SPDX-License-Identifier: Apache-2.0
"""UpdateInstance over the real API server, and ``launcherctl set``."""

from __future__ import annotations

import pytest
from component_parts import VMI_YAML
from msgspec.structs import replace
from standin_agent import StandInAgent

from launcher.cli.client import Client
from launcher.cli.main import run
from launcher.errors import InvalidSpec, NotFound
from launcher.spec.model import VirtualMachineInstanceCondition, VirtualMachineInstanceStatus


@pytest.fixture
def ctl(address: str, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setenv("LAUNCHER_SERVER", address)
    client = Client(address)
    client.instances.create(VMI_YAML)
    return client


def changing(agent: StandInAgent, status: str, message: str = "1 of 2 vCPUs are plugged") -> None:
    """Let the guest be in the middle of a change."""
    vmi = agent.instances["default", "demo"]
    condition = VirtualMachineInstanceCondition(type="HotVCPUChange", status=status, message=message)
    agent.put(replace(vmi, status=VirtualMachineInstanceStatus(phase="Running", conditions=(condition,))))


def test_what_is_shown_can_be_sent_back_changed(ctl: Client, agent: StandInAgent) -> None:
    vmi = ctl.instances.get("demo")
    vmi["spec"]["domain"]["cpu"]["sockets"] = 3
    tried = ctl.instances.update(vmi, dry_run=True)
    assert tried["spec"]["domain"]["cpu"] == {"cores": 2, "sockets": 3}
    assert ctl.instances.get("demo")["spec"]["domain"]["cpu"] == {"cores": 2}
    assert ctl.instances.update(vmi)["spec"]["domain"]["cpu"] == {"cores": 2, "sockets": 3}
    cpu = agent.instances["default", "demo"].spec.domain.cpu
    assert cpu is not None
    assert cpu.sockets == 3


def test_what_cannot_change_is_told_with_its_line(ctl: Client) -> None:
    with pytest.raises(InvalidSpec) as caught:
        ctl.instances.update(VMI_YAML.replace("cores: 2", "cores: 2\n      model: Haswell"))
    (found,) = caught.value.violations
    assert (found.field, found.line) == ("spec.domain.cpu.model", 9)
    with pytest.raises(NotFound):
        ctl.instances.update(VMI_YAML.replace("name: demo", "name: nobody"))


def test_set_changes_sockets_and_memory(
    ctl: Client, agent: StandInAgent, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["set", "vmi", "demo", "--sockets", "2", "--memory", "1Gi"]) == 0
    assert capsys.readouterr().out == "virtualmachineinstance.kubevirt.io/demo changed\n"
    domain = ctl.instances.get("demo")["spec"]["domain"]
    assert (domain["cpu"]["sockets"], domain["memory"]["guest"]) == (2, "1Gi")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "nothing to change"),
        (("--sockets", "0"), "--sockets"),
        (("--memory", "much"), "--memory"),
    ],
)
def test_set_refuses_what_makes_no_sense(
    ctl: Client, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert run(["set", "demo", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_set_waits_until_no_change_is_under_way(
    ctl: Client, agent: StandInAgent, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["set", "demo", "--sockets", "2", "--wait"]) == 0
    changing(agent, "True")
    assert run(["--timeout", "0.5", "set", "demo", "--sockets", "2", "--wait"]) != 0
    assert "1 of 2 vCPUs are plugged" in capsys.readouterr().err
    changing(agent, "False", "1 of 2 vCPUs are plugged; vcpu unplug request timed out")
    assert run(["set", "demo", "--sockets", "2", "--wait"]) != 0
    assert "timed out" in capsys.readouterr().err

# SPDX-License-Identifier: Apache-2.0
"""Devices through which host and guest hear of each other: metrics, watchdog, panic; starts and reboots."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from agent_world import client, condition, eventually, is_true, leftovers, phase, ticks, until, until_gone
from feature_guests import Object, Shell, guest, kernel_boot, monitor, shell
from lxml import etree

from launcher.cli.client import Client
from launcher.errors import HostUnsupported, Unavailable, WrongPhase
from launcher.lab.image import Image
from launcher.lab.lab import Lab
from launcher.lab.node import Node

pytestmark = pytest.mark.node

PORT = "/dev/virtio-ports/org.github.vhostmd.1"
# Registers of the 6300ESB's watchdog in its PCI configuration: 0x60 chooses ticks of 1 MHz, so that both of
# its stages last one second; 0x68 enables it. No driver is needed.
FIRE = (
    "cd $(dirname $(grep -l 0x25ab /sys/bus/pci/devices/*/device)) && echo 1 >enable && "
    "printf '\\004\\000' | dd of=config bs=2 seek=48 conv=notrunc 2>/dev/null && "
    "printf '\\002' | dd of=config bs=1 seek=104 conv=notrunc 2>/dev/null"
)
PANIC = "echo c >/proc/sysrq-trigger"


@pytest.fixture(scope="module")
def node(needs_nodes: None) -> Iterator[Node]:
    with Lab(names=("a",)) as lab:
        lab.start_agents()
        yield lab.node("a")


@pytest.fixture
def agent(node: Node) -> Iterator[Client]:
    with client(node) as agent:
        yield agent
        names = [instance["metadata"]["name"] for instance in agent.instances.list()]
        for name in names:
            agent.instances.delete(name, namespace="default", grace_period_s=0)
        for name in names:
            until_gone(agent, name)
        assert leftovers(node) == []


def linux(name: str, image: Image, *, domain: Object | None = None, **parts: Any) -> Object:
    """The Linux guest with a shell."""
    return guest(
        name,
        memory="128Mi",
        domain={"firmware": {"kernelBoot": kernel_boot(image)}, **(domain or {})},
        **parts,
    )


def start(agent: Client, manifest: Object) -> str:
    name: str = agent.instances.create(manifest)["metadata"]["name"]
    vmi = until(agent, name, lambda vmi: is_true(vmi, "Ready") or condition(vmi, "Synchronized"))
    assert is_true(vmi, "Ready"), condition(vmi, "Synchronized")
    return name


# --- downward metrics -------------------------------------------------------------------------------------


def ask(inside: Shell, request: str) -> str:
    """What the guest reads on the port up to the empty line."""
    return inside.run(
        f"exec 3<>{PORT}; printf '{request}' >&3; "
        'while read -r line <&3 && [ -n "$line" ]; do echo "$line"; done; exec 3>&-'
    )


def numbers(text: str) -> dict[tuple[str, str], str]:
    return {
        (metric.get("context", ""), metric.findtext("name") or ""): metric.findtext("value") or ""
        for metric in etree.fromstring(text)
    }


def on_disk(inside: Shell) -> dict[tuple[str, str], str]:
    """What a reader finds on the metrics disk, past the host's cache and its own."""
    return numbers(
        inside.run("dd if=/dev/vda bs=64k count=1 iflag=direct 2>/dev/null | tail -c +17 | tr -d '\\000'")
    )


def test_a_guest_reads_metrics_of_its_host(agent: Client, node: Node, guest_image: Image) -> None:
    manifest = linux("metrics", guest_image, devices={"downwardMetrics": {}})
    devices = manifest["spec"]["domain"]["devices"]
    devices["disks"].append({"name": "dm", "disk": {"bus": "virtio"}})
    manifest["spec"]["volumes"].append({"name": "dm", "downwardMetrics": {}})
    name = start(agent, manifest)
    with shell(agent, name) as inside:
        found = numbers(ask(inside, "GET /metrics/XML\\n\\n"))
        assert found["host", "HostName"] == "a"
        assert re.fullmatch(r"QEMU \d+\.\d+\.\d+", found["host", "VirtProductInfo"])
        assert (found["vm", "ResourceProcessorLimit"], found["vm", "ResourceMemoryLimit"]) == ("1", "131072")
        assert 0 < float(found["vm", "TotalCPUTime"]) < float(found["host", "TotalCPUTime"])
        total = int(node.run("sed", "-n", r"s/^MemTotal: *\([0-9]*\) kB/\1/p", "/proc/meminfo"))
        assert 0 < int(found["host", "FreePhysicalMemory"]) < total
        assert abs(int(found["host", "Time"]) - int(node.run("date", "+%s"))) < 30
        assert ask(inside, "GET /etc/passwd\\n\\n") == "INVALID REQUEST"

        assert int(inside.run("cat /sys/block/vda/size")) * 512 == 256 * 1024
        assert inside.run("cat /sys/block/vda/ro") == "1"
        eventually("the disk is filled", lambda: ("host", "Time") in on_disk(inside))
        before = on_disk(inside)
        assert before["host", "HostName"] == "a"
        eventually("the disk is refilled", lambda: on_disk(inside)["host", "Time"] > before["host", "Time"])

        node.stop_agent(signal.SIGKILL)
        node.start_agent()
        eventually("the client is connected again", lambda: answers(agent))
    with shell(agent, name, up=True) as inside:
        again = numbers(ask(inside, "GET /metrics/XML\\n\\n"))
        assert float(again["vm", "TotalCPUTime"]) > float(found["vm", "TotalCPUTime"])
        before = on_disk(inside)
        eventually("the disk is refilled", lambda: on_disk(inside)["host", "Time"] > before["host", "Time"])


def answers(agent: Client) -> bool:
    """Whether the client reaches its agent: one that failed waits a second before it tries again."""
    try:
        agent.node()
    except Unavailable:
        return False
    return True


# --- watchdog and panic -----------------------------------------------------------------------------------


def test_a_watchdog_that_resets_is_reported_each_time(agent: Client, node: Node, guest_image: Image) -> None:
    devices = {"watchdog": {"name": "dog", "i6300esb": {"action": "reset"}}}
    name = start(agent, linux("hung", guest_image, devices=devices))
    for times in ("once", "2 times"):
        with shell(agent, name) as inside:
            before = boots(agent, name)
            inside.type(FIRE)
            vmi = until(agent, name, partial(tells, "WatchdogFired", times))
        assert phase(vmi) == "Running"
        assert "its action was reset" in message(vmi, "WatchdogFired")
        eventually("the guest boots again", partial(booted_more_than, before, agent, name))


def test_a_watchdog_that_powers_off_ends_the_instance(agent: Client, node: Node, guest_image: Image) -> None:
    devices = {"watchdog": {"name": "dog", "i6300esb": {"action": "poweroff"}}}
    name = start(agent, linux("dead", guest_image, devices=devices))
    with shell(agent, name) as inside:
        inside.type(FIRE)
        vmi = until(agent, name, lambda vmi: phase(vmi) in {"Succeeded", "Failed"})
    assert (phase(vmi), vmi["status"]["reason"]) == ("Failed", "WatchdogFired")
    assert "its action was poweroff" in message(vmi, "WatchdogFired")


def test_a_panic_is_told_from_a_crash(agent: Client, node: Node, guest_image: Image) -> None:
    devices = {"panicDevices": [{"model": "isa"}]}
    name = start(agent, linux("panic", guest_image, devices=devices))
    with shell(agent, name) as inside:
        inside.type(PANIC)
        vmi = until(agent, name, lambda vmi: phase(vmi) in {"Succeeded", "Failed"})
    assert (phase(vmi), vmi["status"]["reason"]) == ("Failed", "GuestPanicked")


def message(vmi: Object, kind: str) -> str:
    return str((condition(vmi, kind) or {}).get("message", ""))


def tells(kind: str, words: str, vmi: Object) -> bool:
    return words in message(vmi, kind)


def boots(agent: Client, name: str) -> int:
    """How often the guest came up."""
    return agent.instances.console_log(name, namespace="default").count(b"GUEST UP")


def booted_more_than(times: int, agent: Client, name: str) -> bool:
    return boots(agent, name) > times


# --- starts and reboots -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "ends"), [("Terminate", True), ("Reboot", False), (None, False)])
def test_what_a_reboot_of_the_guest_does(
    agent: Client, node: Node, guest_image: Image, policy: str | None, ends: bool
) -> None:
    domain = {"rebootPolicy": policy} if policy else {}
    name = start(agent, linux("reboots", guest_image, domain=domain))
    with shell(agent, name) as inside:
        inside.type("reboot -f")
        if ends:
            vmi = until(agent, name, lambda vmi: phase(vmi) in {"Succeeded", "Failed"})
            assert phase(vmi) == "Succeeded"
            assert condition(vmi, "Ready")["status"] == "False"  # type: ignore[index]
        else:
            eventually("the guest boots again", lambda: boots(agent, name) == 2)
            assert phase(agent.instances.get(name, namespace="default")) == "Running"


def test_a_paused_start_waits_for_its_user(agent: Client, node: Node, bootsector_image: Image) -> None:
    disks = {"root": {"disk": {"bus": "virtio"}}}
    manifest = guest("waits", disks=disks, image=bootsector_image, startStrategy="Paused")
    agent.instances.create(manifest)
    vmi = until(agent, "waits", lambda vmi: is_true(vmi, "Paused") and phase(vmi) == "Running")
    assert condition(vmi, "Paused")["reason"] == "PausedByUser"  # type: ignore[index]
    assert "VM status: paused" in monitor(node, "waits", "info status")
    assert agent.instances.console_log("waits", namespace="default") == b""
    assert "<bootmenu enable='yes' timeout='10000'/>" in agent.instances.domain_xml(
        "waits", namespace="default"
    )
    agent.instances.unpause("waits", namespace="default")
    # The boot menu gives its 10 s first.
    eventually("the guest ticks", lambda: ticks(agent, "waits"), timeout_s=60)


def test_a_virtual_machine_gets_an_input_device_by_itself(
    agent: Client, node: Node, bootsector_image: Image
) -> None:
    disks = {"root": {"disk": {"bus": "virtio"}}}
    devices = {"autoattachInputDevice": True}
    instance = guest("pointer", disks=disks, image=bootsector_image, devices=devices)
    machine = {
        "apiVersion": instance["apiVersion"],
        "kind": "VirtualMachine",
        "metadata": instance["metadata"],
        "spec": {"template": {"spec": instance["spec"]}},
    }
    name = start(agent, machine)
    assert "dev: usb-tablet" in monitor(node, name, "info qtree")


# --- SEV on a host that has none --------------------------------------------------------------------------


def test_a_host_without_sev_refuses_by_name(agent: Client, node: Node, bootsector_image: Image) -> None:
    with pytest.raises(HostUnsupported) as caught:
        agent.launch_security.platform()
    assert caught.value.capability == "AMD SEV"
    domain = {
        "firmware": {"bootloader": {"efi": {"secureBoot": False}}},
        "launchSecurity": {"sev": {"attestation": {}}},
    }
    disks = {"root": {"disk": {"bus": "virtio"}}}
    secret = guest("secret", domain=domain, disks=disks, image=bootsector_image, startStrategy="Paused")
    with pytest.raises(HostUnsupported, match="SEV"):
        agent.instances.create(secret)
    name = start(agent, guest("plain", disks=disks, image=bootsector_image))
    with pytest.raises(WrongPhase, match="no guest that is attested"):
        agent.launch_security.measurement(name)

# SPDX-License-Identifier: Apache-2.0
"""Consoles, displays, inputs and the other small devices."""

from __future__ import annotations

import pytest
from device_contexts import OLD_LIBVIRT, RUN, STATE, context, devices

from launcher.errors import HostUnsupported
from launcher.plan.devices.balloon import plan_balloon
from launcher.plan.devices.channel import plan_channels
from launcher.plan.devices.console import plan_serial
from launcher.plan.devices.filesystem import plan_filesystems
from launcher.plan.devices.graphics import plan_graphics
from launcher.plan.devices.input import plan_inputs
from launcher.plan.devices.model import (
    BalloonPlan,
    ChannelPlan,
    FilesystemPlan,
    GraphicsPlan,
    InputPlan,
    PanicPlan,
    RedirdevPlan,
    RngPlan,
    SerialPlan,
    SoundPlan,
    TpmPlan,
    VideoPlan,
    VsockPlan,
    WatchdogPlan,
)
from launcher.plan.devices.panic import plan_panics
from launcher.plan.devices.redirdev import plan_redirdevs
from launcher.plan.devices.rng import plan_rng
from launcher.plan.devices.sound import plan_sound
from launcher.plan.devices.tpm import plan_tpm
from launcher.plan.devices.video import plan_video
from launcher.plan.devices.vsock import plan_vsock
from launcher.plan.devices.watchdog import plan_watchdog
from launcher.plan.facts import NodeFacts
from launcher.plan.settings import PlanSettings

NON_TRANSITIONAL = "virtio-non-transitional"


@pytest.mark.parametrize(
    ("text", "logged", "expected"),
    [
        ("{}", True, SerialPlan(socket=f"{RUN}/serial0.sock", log=f"{STATE}/serial0.log")),
        ("{}", False, SerialPlan(socket=f"{RUN}/serial0.sock")),
        ("{logSerialConsole: false}", True, SerialPlan(socket=f"{RUN}/serial0.sock")),
        (
            "{logSerialConsole: true}",
            False,
            SerialPlan(socket=f"{RUN}/serial0.sock", log=f"{STATE}/serial0.log"),
        ),
        ("{autoattachSerialConsole: false, logSerialConsole: true}", True, None),
    ],
)
def test_serial(text: str, logged: bool, expected: SerialPlan | None) -> None:
    assert plan_serial(context(devices(text), settings=PlanSettings(serial_log=logged))) == expected


def test_channels() -> None:
    agent = ChannelPlan(name="org.qemu.guest_agent.0")
    metrics = ChannelPlan(name="org.github.vhostmd.1", socket=f"{RUN}/downwardmetrics.sock")
    assert plan_channels(context()) == (agent,)
    assert plan_channels(context(devices("{downwardMetrics: {}}"))) == (agent, metrics)


def test_graphics() -> None:
    assert plan_graphics(context()) == GraphicsPlan(socket=f"{RUN}/vnc.sock")
    assert plan_graphics(context(devices("{autoattachGraphicsDevice: false}"))) is None


def test_a_guest_of_a_foreign_architecture_has_no_display() -> None:
    foreign = context(
        "architecture: arm64", facts=NodeFacts(arch="amd64"), settings=PlanSettings(allow_emulation=True)
    )
    assert plan_graphics(foreign) is None
    assert plan_video(foreign) is None
    assert [device.type for device in plan_inputs(foreign)] == ["tablet", "keyboard"]


EFI = "domain: {firmware: {bootloader: {efi: {}}}}"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("", VideoPlan(type="vga", vram_kib=16384)),
        (EFI, VideoPlan(type="bochs")),
        ("architecture: arm64", VideoPlan(type="virtio")),
        ("architecture: s390x", VideoPlan(type="virtio")),
        ("domain: {devices: {video: {type: virtio}}}", VideoPlan(type="virtio", vram_kib=16384)),
        ("domain: {devices: {video: {}}}", VideoPlan(type="vga", vram_kib=16384)),
        ("domain: {devices: {autoattachGraphicsDevice: false}}", None),
    ],
)
def test_video(spec: str, expected: VideoPlan | None) -> None:
    assert plan_video(context(spec)) == expected


TABLET = InputPlan(name="t", type="tablet", bus="usb")


@pytest.mark.parametrize(
    ("arch", "text", "expected"),
    [
        ("amd64", "{}", ()),
        ("amd64", "{inputs: [{name: t, type: tablet}]}", (TABLET,)),
        (
            "amd64",
            "{inputs: [{name: t, type: tablet, bus: virtio}]}",
            (InputPlan(name="t", type="tablet", bus="virtio", model="virtio"),),
        ),
        ("arm64", "{}", (InputPlan(type="tablet", bus="usb"), InputPlan(type="keyboard", bus="usb"))),
        ("arm64", "{inputs: [{name: t, type: tablet}]}", (TABLET, InputPlan(type="keyboard", bus="usb"))),
        ("arm64", "{autoattachGraphicsDevice: false}", ()),
        ("s390x", "{}", (InputPlan(type="keyboard", bus="virtio"),)),
        ("s390x", "{autoattachGraphicsDevice: false}", ()),
    ],
)
def test_inputs(arch: str, text: str, expected: tuple[InputPlan, ...]) -> None:
    assert plan_inputs(context(f"{devices(text)}\narchitecture: {arch}")) == expected


def test_rng() -> None:
    assert plan_rng(context()) is None
    assert plan_rng(context(devices("{rng: {}}"))) == RngPlan(model=NON_TRANSITIONAL)
    sev = "domain: {devices: {rng: {}}, launchSecurity: {sev: {}}}"
    assert plan_rng(context(sev)) == RngPlan(model=NON_TRANSITIONAL, iommu=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{}", None),
        ("{tpm: {}}", TpmPlan(model="tpm-tis")),
        ("{tpm: {persistent: true}}", TpmPlan(model="tpm-crb", persistent=True)),
        ("{tpm: {enabled: false, persistent: true}}", None),
        ("{tpm: {enabled: true}}", TpmPlan(model="tpm-tis")),
    ],
)
def test_tpm(text: str, expected: TpmPlan | None) -> None:
    assert plan_tpm(context(devices(text))) == expected


@pytest.mark.parametrize(
    ("arch", "text", "expected"),
    [
        ("amd64", "{}", None),
        ("amd64", "{watchdog: {name: w}}", WatchdogPlan(name="w", model="i6300esb", action="reset")),
        (
            "amd64",
            "{watchdog: {name: w, i6300esb: {action: poweroff}}}",
            WatchdogPlan(name="w", model="i6300esb", action="poweroff"),
        ),
        (
            "s390x",
            "{watchdog: {name: w, diag288: {action: shutdown}}}",
            WatchdogPlan(name="w", model="diag288", action="shutdown"),
        ),
    ],
)
def test_watchdog(arch: str, text: str, expected: WatchdogPlan | None) -> None:
    assert plan_watchdog(context(f"{devices(text)}\narchitecture: {arch}")) == expected


def test_an_arm_board_has_no_watchdog() -> None:
    with pytest.raises(HostUnsupported, match="watchdog"):
        plan_watchdog(context("architecture: arm64\ndomain: {devices: {watchdog: {name: w}}}"))


@pytest.mark.parametrize(
    ("spec", "allocations", "expected"),
    [
        ("{}", {"vsock_cid": 4}, None),
        ("{autoattachVSOCK: true}", {"vsock_cid": 4}, VsockPlan(model=NON_TRANSITIONAL, cid=4)),
        ("{autoattachVSOCK: true}", {"status": "VSOCKCID: 9"}, VsockPlan(model=NON_TRANSITIONAL, cid=9)),
        ("{autoattachVSOCK: true}", {}, VsockPlan(model=NON_TRANSITIONAL)),
        (
            "{autoattachVSOCK: true, useVirtioTransitional: true}",
            {"vsock_cid": 4},
            VsockPlan(model=NON_TRANSITIONAL, cid=4),
        ),
    ],
)
def test_vsock(spec: str, allocations: dict[str, object], expected: VsockPlan | None) -> None:
    assert plan_vsock(context(devices(spec), **allocations)) == expected  # type: ignore[arg-type]


def test_vsock_on_s390x_is_a_ccw_device() -> None:
    planned = plan_vsock(context("architecture: s390x\ndomain: {devices: {autoattachVSOCK: true}}"))
    assert planned == VsockPlan(model="virtio")


@pytest.mark.parametrize(
    ("domain", "settings", "annotations", "reporting", "period"),
    [
        ("", PlanSettings(), {}, True, 10),
        ("", PlanSettings(free_page_reporting=False), {}, False, 10),
        ("", PlanSettings(balloon_stats_period_s=0), {}, True, None),
        ("", PlanSettings(), {"kubevirt.io/free-page-reporting-disabled": "true"}, False, 10),
        ("", PlanSettings(), {"kubevirt.io/free-page-reporting-disabled": "no"}, True, 10),
        ("cpu: {dedicatedCpuPlacement: true}", PlanSettings(), {}, False, 10),
        ("cpu: {realtime: {}}", PlanSettings(), {}, False, 10),
        ("memory: {guest: 1Gi, hugepages: {pageSize: 2Mi}}", PlanSettings(), {}, False, 10),
    ],
)
def test_balloon(
    domain: str, settings: PlanSettings, annotations: dict[str, str], reporting: bool, period: int | None
) -> None:
    planned = plan_balloon(context(f"domain: {{{domain}}}", settings=settings, annotations=annotations))
    assert planned == BalloonPlan(
        model=NON_TRANSITIONAL, free_page_reporting=reporting, stats_period_s=period
    )


def test_a_balloon_that_is_turned_off() -> None:
    sev = "domain: {devices: {autoattachMemBalloon: false}, launchSecurity: {sev: {}}}"
    assert plan_balloon(context(sev)) == BalloonPlan(model="none")


def test_panics() -> None:
    text = devices("{panicDevices: [{model: isa}, {}, {model: pvpanic}]}")
    assert plan_panics(context(text)) == (PanicPlan(model="isa"), PanicPlan(), PanicPlan(model="pvpanic"))
    with pytest.raises(HostUnsupported, match="pvpanic"):
        plan_panics(context(text, facts=OLD_LIBVIRT))


def test_sound() -> None:
    assert plan_sound(context()) is None
    assert plan_sound(context(devices("{sound: {name: s}}"))) == SoundPlan(name="s", model="ich9")
    assert plan_sound(context(devices("{sound: {name: s, model: ac97}}"))) == SoundPlan(
        name="s", model="ac97"
    )


def test_redirdevs() -> None:
    assert plan_redirdevs(context()) == ()
    sockets = [f"{RUN}/usbredir{slot}.sock" for slot in range(4)]
    planned = plan_redirdevs(context(devices("{clientPassthrough: {}}")))
    assert planned == tuple(RedirdevPlan(socket=socket) for socket in sockets)


def test_filesystems() -> None:
    text = """
domain: {devices: {filesystems: [{name: a, virtiofs: {}}, {name: b, virtiofs: {}}, {name: c, virtiofs: {}}]}}
volumes:
- {name: a, persistentVolumeClaim: {claimName: c1}}
- {name: b, containerPath: {path: /srv/data}}
- {name: c, configMap: {name: x}}
"""
    planned = plan_filesystems(context(text, claims={"c1": {"path": "/claims/c1"}}))
    assert planned == (
        FilesystemPlan(
            name="a", socket=f"{RUN}/virtiofs0.sock", kind="persistentVolumeClaim", directory="/claims/c1"
        ),
        FilesystemPlan(name="b", socket=f"{RUN}/virtiofs1.sock", kind="containerPath", directory="/srv/data"),
        FilesystemPlan(
            name="c", socket=f"{RUN}/virtiofs2.sock", kind="configMap", directory=f"{STATE}/shares/c"
        ),
    )

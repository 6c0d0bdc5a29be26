# SPDX-License-Identifier: Apache-2.0
"""Virtual functions on a /sys of files: found, lent to a guest, and given back as they were."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from launcher.errors import HostUnsupported, NetworkError
from launcher.network import function
from launcher.network.function import (
    function_of,
    functions_on,
    lend_function,
    look_at_function,
    return_function,
)
from launcher.plan.steps import LendFunction, VirtualFunction

DEVICE, CARD = "0000:3b:02.1", "0000:3b:00.0"
WAS = VirtualFunction(link="ens1f0", number=1, mac="0a:00:00:00:00:01", vlan=5, driver="iavf")
STEP = LendFunction(
    owner="u",
    network="fast",
    device=DEVICE,
    link="ens1f0",
    number=1,
    mac="02:00:00:00:00:07",
    vlan=7,
    was=WAS,
)


class Card:
    """Remembers what was programmed."""

    def __init__(self) -> None:
        self.programmed: list[tuple[str, int, str, int]] = []

    def program(self, link: str, number: int, mac: str, vlan: int) -> None:
        self.programmed.append((link, number, mac, vlan))


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """A card with two functions; the second has a driver. Files remember what the kernel would be told."""
    devices, drivers = tmp_path / "bus/pci/devices", tmp_path / "bus/pci/drivers"
    for driver in ("iavf", "vfio-pci"):
        (drivers / driver).mkdir(parents=True)
        (drivers / driver / "unbind").touch()
    (devices / CARD / "net/ens1f0").mkdir(parents=True)
    for number, address in enumerate(("0000:3b:02.0", DEVICE)):
        (devices / address).mkdir()
        (devices / address / "driver_override").write_text("(null)\n")
        (devices / address / "physfn").symlink_to(devices / CARD)
        (devices / CARD / f"virtfn{number}").symlink_to(devices / address)
    (devices / DEVICE / "driver").symlink_to(drivers / "iavf")
    (tmp_path / "bus/pci/drivers_probe").touch()
    return tmp_path


def test_a_card_lists_its_functions_by_number(sysfs: Path) -> None:
    (sysfs / "class/net/ens1f0").mkdir(parents=True)
    (sysfs / "class/net/ens1f0/device").symlink_to(sysfs / "bus/pci/devices" / CARD)
    assert functions_on("fast", "ens1f0", sysfs=sysfs) == ("0000:3b:02.0", DEVICE)


def test_a_card_that_is_not_there_or_has_none_is_named(sysfs: Path) -> None:
    with pytest.raises(NetworkError, match="no card ens9"):
        functions_on("fast", "ens9", sysfs=sysfs)
    (sysfs / "class/net/ens9/device").mkdir(parents=True)
    with pytest.raises(NetworkError, match="ens9 has no virtual functions"):
        functions_on("fast", "ens9", sysfs=sysfs)


def bound_to(sysfs: Path, driver: str) -> None:
    """What the kernel does when it is told."""
    link = sysfs / "bus/pci/devices" / DEVICE / "driver"
    link.unlink(missing_ok=True)
    if driver:
        link.symlink_to(sysfs / "bus/pci/drivers" / driver)


def told(sysfs: Path, *path: str) -> str:
    return Path(sysfs, "bus/pci", *path).read_text()


def test_a_function_is_found_with_what_it_has(sysfs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "_programmed", lambda network, name, number: ("0a:00:00:00:00:01", 5))
    assert look_at_function("fast", DEVICE, sysfs=sysfs) == WAS


@pytest.mark.parametrize(
    ("device", "message"),
    [("0000:ff:00.0", "there is no PCI device"), (CARD, "no virtual function of a network card")],
)
def test_what_is_no_function_is_refused(sysfs: Path, device: str, message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        look_at_function("fast", device, sysfs=sysfs)


def test_a_function_is_programmed_and_bound_and_given_back(sysfs: Path) -> None:
    card = Card()
    lend_function(STEP, sysfs=sysfs, program=card.program)
    assert card.programmed == [("ens1f0", 1, "02:00:00:00:00:07", 7)]
    assert told(sysfs, "devices", DEVICE, "driver_override") == "vfio-pci\n"
    assert told(sysfs, "drivers/iavf/unbind") == DEVICE
    assert told(sysfs, "drivers_probe") == DEVICE
    bound_to(sysfs, "vfio-pci")
    (sysfs / "bus/pci/drivers_probe").write_text("")
    lend_function(STEP, sysfs=sysfs, program=card.program)
    assert told(sysfs, "drivers_probe") == "", "it is bound already"

    return_function(STEP, sysfs=sysfs, program=card.program)
    assert card.programmed[-1] == ("ens1f0", 1, "0a:00:00:00:00:01", 5)
    assert told(sysfs, "devices", DEVICE, "driver_override") == "\n"
    assert told(sysfs, "drivers/vfio-pci/unbind") == DEVICE
    assert told(sysfs, "drivers_probe") == DEVICE


def test_killed_between_unbinding_and_binding(sysfs: Path) -> None:
    bound_to(sysfs, "")
    lend_function(STEP, sysfs=sysfs, program=Card().program)
    assert told(sysfs, "drivers_probe") == DEVICE
    bound_to(sysfs, "")
    (sysfs / "bus/pci/drivers_probe").write_text("")
    return_function(STEP, sysfs=sysfs, program=Card().program)
    assert told(sysfs, "drivers_probe") == DEVICE


def test_a_function_that_is_gone_needs_nothing(tmp_path: Path) -> None:
    card = Card()
    return_function(STEP, sysfs=tmp_path, program=card.program)
    assert card.programmed == []


def test_without_the_driver_nothing_is_touched(sysfs: Path) -> None:
    (sysfs / "bus/pci/drivers/vfio-pci/unbind").unlink()
    (sysfs / "bus/pci/drivers/vfio-pci").rmdir()
    card = Card()
    with pytest.raises(HostUnsupported, match="vfio-pci"):
        lend_function(STEP, sysfs=sysfs, program=card.program)
    assert card.programmed == []


def test_what_the_kernel_says_of_functions() -> None:
    message = ifinfmsg()
    message["attrs"] = [
        (
            "IFLA_VFINFO_LIST",
            {
                "attrs": [
                    ("IFLA_VF_INFO", {"attrs": [("IFLA_VF_MAC", {"vf": n, "mac": f"0a:00:00:00:00:0{n}"}),
                                                ("IFLA_VF_VLAN", {"vf": n, "vlan": 4 + n, "qos": 0})]})
                    for n in range(2)
                ]
            },
        )
    ]  # fmt: skip
    message.encode()
    decoded = ifinfmsg(message.data)
    decoded.decode()
    assert function_of(decoded, 1) == ("0a:00:00:00:00:01", 5)
    assert function_of(decoded, 7) == ("", 0)

# SPDX-License-Identifier: Apache-2.0
"""Virtual functions of network cards: MAC address and VLAN on the card, and the driver that lends them.

Blocking; call it in a thread. What was there before is found once and put back at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from launcher.errors import HostUnsupported, NetworkError
from launcher.network import link
from launcher.plan.steps import LendFunction, VirtualFunction

SYSFS: Final = Path("/sys")
VFIO: Final = "vfio-pci"
WITH_FUNCTIONS: Final = 1 << 0
"""Linux, include/uapi/linux/rtnetlink.h: RTEXT_FILTER_VF."""
NOBODY: Final = "00:00:00:00:00:00"
"""What cards say of functions that have no address yet."""

Program = Callable[[str, int, str, int], None]
"""Sets MAC address and VLAN (0: none) of the function of that number on a link."""


def look_at_function(network: str, device: str, *, sysfs: Path = SYSFS) -> VirtualFunction:
    """The card that ``device`` (a PCI address) is a function of, and what it has now.

    Raises:
        NetworkError: there is no such device, or it is no virtual function of a network card.
    """
    place = sysfs / "bus/pci/devices" / device
    if not place.is_dir():
        raise NetworkError(network, f"there is no PCI device {device}")
    card = place / "physfn"
    names = sorted(path.name for path in (card / "net").iterdir()) if (card / "net").is_dir() else []
    numbers = [
        int(path.name.removeprefix("virtfn"))
        for path in card.glob("virtfn*")
        if path.resolve().name == place.resolve().name
    ]
    if not names or not numbers:
        raise NetworkError(
            network,
            f"{device} is no virtual function of a network card",
            hint="write their number to sriov_numvfs of the card, and hand in the address of one",
        )
    mac, vlan = _programmed(network, names[0], numbers[0])
    return VirtualFunction(link=names[0], number=numbers[0], mac=mac, vlan=vlan, driver=_driver(place))


def functions_on(network: str, card: str, *, sysfs: Path = SYSFS) -> tuple[str, ...]:
    """PCI addresses of the virtual functions of the card whose link is ``card``, by their numbers.

    Raises:
        NetworkError: there is no such card, or it has none.
    """
    place = sysfs / "class/net" / card / "device"
    if not place.is_dir():
        raise NetworkError(network, f"there is no card {card} on this node")
    found = {
        int(path.name.removeprefix("virtfn")): path.resolve().name
        for path in place.glob("virtfn*")
        if path.name.removeprefix("virtfn").isdigit()
    }
    if not found:
        raise NetworkError(
            network,
            f"the card {card} has no virtual functions",
            hint=f"write their number to /sys/class/net/{card}/device/sriov_numvfs",
        )
    return tuple(found[number] for number in sorted(found))


def lend_function(step: LendFunction, *, sysfs: Path = SYSFS, program: Program | None = None) -> None:
    """Program the function on its card and bind it to vfio-pci.

    Raises:
        NetworkError: the card or its driver refuses. HostUnsupported: there is no vfio-pci.
    """
    if not (sysfs / "bus/pci/drivers" / VFIO).is_dir():
        raise HostUnsupported(
            "the driver vfio-pci", "the kernel has not loaded it", hint="modprobe vfio-pci, and an IOMMU"
        )
    (program or _program)(step.link, step.number, step.mac, step.vlan)
    with _sysfs(step):
        _bind(sysfs, step.device, VFIO, override=VFIO)


def return_function(step: LendFunction, *, sysfs: Path = SYSFS, program: Program | None = None) -> None:
    """Give the function its driver, MAC address and VLAN back; a device that is gone needs nothing."""
    if not (sysfs / "bus/pci/devices" / step.device).is_dir():
        return
    with _sysfs(step):
        _bind(sysfs, step.device, step.was.driver, override="")
    (program or _program)(step.was.link, step.was.number, step.was.mac or NOBODY, step.was.vlan)


def _bind(sysfs: Path, device: str, driver: str, *, override: str) -> None:
    place = sysfs / "bus/pci/devices" / device
    (place / "driver_override").write_text(f"{override}\n")
    present = _driver(place)
    if present == driver:
        return
    if present:
        (place / "driver/unbind").write_text(device)
    if driver:
        (sysfs / "bus/pci/drivers_probe").write_text(device)


def _driver(place: Path) -> str:
    driver = place / "driver"
    return driver.resolve().name if driver.exists() else ""


@contextmanager
def _sysfs(step: LendFunction) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise NetworkError(
            step.network,
            f"{step.device} cannot change its driver: {error.strerror}",
            hint="the agent must be able to write /sys, and an IOMMU must be on for vfio-pci",
        ) from error


def _program(name: str, number: int, mac: str, vlan: int) -> None:
    with link.netlink("", f"function {number} of {name} cannot be programmed") as ip:
        index = link.index_of(ip, name)
        if index is None:
            raise NetworkError("", f"there is no link {name}")
        ip.link("set", index=index, vf={"vf": number, "mac": mac})
        ip.link("set", index=index, vf={"vf": number, "vlan": vlan})


def _programmed(network: str, name: str, number: int) -> tuple[str, int]:
    with link.netlink(network, f"cannot look at the functions of {name}") as ip:
        index = link.index_of(ip, name)
        if index is None:
            raise NetworkError(network, f"the card {name} is not in the agent's network namespace")
        return function_of(ip.link("get", index=index, ext_mask=WITH_FUNCTIONS)[0], number)


def function_of(card: Any, number: int) -> tuple[str, int]:
    """MAC address and VLAN of the function in the kernel's message about its card; unknown: none."""
    known = card.get_attr("IFLA_VFINFO_LIST")
    for one in known.get_attrs("IFLA_VF_INFO") if known is not None else ():
        mac, vlan = one.get_attr("IFLA_VF_MAC"), one.get_attr("IFLA_VF_VLAN")
        if mac is not None and mac["vf"] == number:
            return str(mac["mac"])[:17], int(vlan["vlan"]) if vlan is not None else 0
    return "", 0

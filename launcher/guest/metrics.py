# SPDX-License-Identifier: Apache-2.0
"""Downward metrics as vhostmd and its readers in guests know them: numbers of host and guest -> XML. Pure.

Names, contexts and types are those that ``vm-dump-metrics`` and SAP's host agent look for. Sizes are in KiB.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.sax.saxutils import escape

from launcher.host.usage import HostUsage
from launcher.hypervisor.port import DomainUsage
from launcher.units import KIB

VENDOR = "launcher"
NOTHING = b"<metrics><!-- not available at the moment --></metrics>\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """What does not change: the node's name and the version of its QEMU as text."""

    name: str
    qemu: str


@dataclass(frozen=True, slots=True)
class _Metric:
    context: str
    name: str
    value: str | int | float
    unit: str = ""

    @property
    def xml(self) -> str:
        """One element. Characters beyond ASCII become references: readers add bytes up to a sum."""
        value = f"{self.value:.6f}" if isinstance(self.value, float) else str(self.value)
        unit = f' unit="{self.unit}"' if self.unit else ""
        return (
            f'  <metric type="{_type(self.value)}" context="{self.context}"{unit}>\n'
            f"    <name>{self.name}</name>\n"
            f"    <value>{escape(value)}</value>\n"
            "  </metric>\n"
        )


def metrics_xml(host: Host, usage: HostUsage, guest: DomainUsage, *, unix_time: int) -> bytes:
    """The document, which ends with one line end and has no empty line."""
    lines = "".join(metric.xml for metric in _metrics(host, usage, guest, unix_time))
    return f"<metrics>\n{lines}</metrics>\n".encode("ascii", "xmlcharrefreplace")


def _metrics(host: Host, usage: HostUsage, guest: DomainUsage, unix_time: int) -> Iterator[_Metric]:
    yield _Metric("host", "HostName", host.name)
    yield _Metric("host", "HostSystemInfo", "linux")
    yield _Metric("host", "VirtualizationVendor", VENDOR)
    yield _Metric("host", "VirtProductInfo", host.qemu)
    yield _Metric("vm", "TotalCPUTime", guest.cpu_time_s, "s")
    yield _Metric("vm", "ResourceProcessorLimit", guest.vcpus)
    yield _Metric("vm", "PhysicalMemoryAllocatedToVirtualSystem", guest.memory // KIB, "KiB")
    yield _Metric("vm", "ResourceMemoryLimit", guest.memory // KIB, "KiB")
    yield _Metric("host", "NumberOfPhysicalCPUs", usage.sockets)
    yield _Metric("host", "TotalCPUTime", usage.cpu_time_s, "s")
    yield _Metric("host", "FreePhysicalMemory", usage.free_memory // KIB, "KiB")
    yield _Metric("host", "FreeVirtualMemory", (usage.free_memory + usage.free_swap) // KIB, "KiB")
    yield _Metric("host", "MemoryAllocatedToVirtualServers", usage.used_memory // KIB, "KiB")
    yield _Metric("host", "UsedVirtualMemory", (usage.used_memory + usage.used_swap) // KIB, "KiB")
    yield _Metric("host", "PagedInMemory", usage.swapped_in // KIB, "KiB")
    yield _Metric("host", "PagedOutMemory", usage.swapped_out // KIB, "KiB")
    yield _Metric("host", "Time", unix_time, "s")


def _type(value: str | float) -> str:
    if isinstance(value, str):
        return "string"
    return "real64" if isinstance(value, float) else "uint64"

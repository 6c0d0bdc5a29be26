# SPDX-License-Identifier: Apache-2.0
"""What stands in the way of memory hotplug. Used to decide on a default, and to explain a refusal."""

from __future__ import annotations

from launcher.spec.defaults.architectures import Architecture
from launcher.spec.model import DomainSpec, Memory, Quantity
from launcher.units import GIB, MIB

# virtio-mem plugs blocks of this size; with 1 GiB pages a block is one page.
ALIGNMENT = 2 * MIB
# A smaller guest has no zone of memory that could be taken away again.
SMALLEST_GUEST = GIB
# What the 52 bits of a physical address reach on amd64 and arm64.
LARGEST_MEMORY = 2**52


def alignment(memory: Memory) -> int:
    """Size in bytes that guest memory must be a multiple of to grow."""
    return GIB if memory.hugepages is not None and _is_gibibyte(memory.hugepages.page_size) else ALIGNMENT


def _is_gibibyte(size: str | None) -> bool:
    """Whether the size is 1Gi, however it is written: 1024Mi is the same."""
    try:
        return bool(size) and Quantity(size or "0") == GIB
    except ValueError:
        return False


def memory_obstacles(
    domain: DomainSpec, known: Architecture, maximum: Quantity
) -> tuple[tuple[str, str], ...]:
    """Reasons why memory cannot grow to ``maximum``: (field below ``spec.domain``, explanation) each."""
    found = []
    memory = domain.memory or Memory()
    if not known.memory_hotplug:
        found.append(("memory.maxGuest", f"memory hotplug needs an amd64 guest, this one is {known.name}"))
    if domain.cpu is not None and domain.cpu.realtime is not None:
        found.append(("memory.maxGuest", "memory hotplug does not go together with cpu.realtime"))
    if domain.cpu is not None and domain.cpu.numa and domain.cpu.numa.guest_mapping_passthrough is not None:
        found.append(
            ("memory.maxGuest", "memory hotplug does not go together with NUMA guestMappingPassthrough")
        )
    if domain.launch_security is not None:
        found.append(("memory.maxGuest", "memory hotplug does not go together with launchSecurity"))
    if memory.guest is None:
        found.append(("memory.guest", "memory hotplug needs memory.guest"))
        return tuple(found)
    if memory.guest < SMALLEST_GUEST:
        found.append(("memory.guest", "memory hotplug needs a guest of at least 1Gi"))
    if memory.guest > maximum:
        found.append(("memory.maxGuest", f"maxGuest must not be less than the guest memory, {memory.guest}"))
    step = alignment(memory)
    for name, amount in (("guest", memory.guest), ("maxGuest", maximum)):
        if amount.bytes_floor() % step:
            found.append((f"memory.{name}", f"memory hotplug needs multiples of {step // MIB}Mi"))
    return tuple(found)

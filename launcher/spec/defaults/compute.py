# SPDX-License-Identifier: Apache-2.0
"""Defaults of CPU and memory: what is derived from the resources, and the room for hotplug."""

from __future__ import annotations

from msgspec.structs import replace

from launcher.spec.defaults.architectures import architecture
from launcher.spec.defaults.hotplug import LARGEST_MEMORY, memory_obstacles
from launcher.spec.defaults.rebuild import with_domain
from launcher.spec.defaults.settings import DefaultsSettings
from launcher.spec.model import CPU, Memory, Quantity, ResourceRequirements, VirtualMachineInstance
from launcher.units import GIB, KIB, MIB

# Beyond this many vCPUs, hotplug slots are not worth their price (the limit KubeVirt uses).
MAX_HOTPLUG_VCPUS = 512

_SUFFIXES = (("Ti", 1024 * GIB), ("Gi", GIB), ("Mi", MIB), ("Ki", KIB))


def cpu_request(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """CPUs that are limited but not requested are requested."""
    resources = vmi.spec.domain.resources
    if resources is None or "cpu" not in resources.limits or "cpu" in resources.requests:
        return vmi
    requests = resources.requests | {"cpu": resources.limits["cpu"]}
    return with_domain(vmi, resources=replace(resources, requests=requests))


def guest_memory(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """Guest memory is what is requested, else the limit, else one huge page."""
    memory = vmi.spec.domain.memory or Memory()
    if memory.guest is not None:
        return vmi
    resources = vmi.spec.domain.resources or ResourceRequirements()
    for amount in (resources.requests.get("memory"), resources.limits.get("memory"), _page_size(memory)):
        if amount is not None and amount > 0:
            return with_domain(vmi, memory=replace(memory, guest=amount))
    return vmi


def cpu_topology(vmi: VirtualMachineInstance, _: DefaultsSettings) -> VirtualMachineInstance:
    """A guest with no topology at all gets a socket for each CPU of the limit, else of the request, else one.

    One of cores, sockets and threads is enough to leave all three as they are: what is absent counts as one,
    and a guest that does not name its sockets has no room for more of them.
    """
    cpu = vmi.spec.domain.cpu or CPU()
    if cpu.cores or cpu.sockets or cpu.threads:
        return vmi
    resources = vmi.spec.domain.resources or ResourceRequirements()
    amount = resources.limits.get("cpu") or resources.requests.get("cpu")
    sockets = max(1, amount.ceil()) if amount is not None else 1
    return with_domain(vmi, cpu=replace(cpu, cores=1, sockets=sockets, threads=1))


def cpu_model(vmi: VirtualMachineInstance, settings: DefaultsSettings) -> VirtualMachineInstance:
    """The CPU model is the node's (host-model); on arm64 it is host-passthrough."""
    cpu = vmi.spec.domain.cpu or CPU()
    if cpu.model:
        return vmi
    model = architecture(vmi.spec.architecture).cpu_model or settings.cpu_model
    return with_domain(vmi, cpu=replace(cpu, model=model))


def cpu_hotplug(vmi: VirtualMachineInstance, settings: DefaultsSettings) -> VirtualMachineInstance:
    """Sockets can be added up to four times their number (amd64, s390x, when the guest has named sockets)."""
    cpu = vmi.spec.domain.cpu
    known = architecture(vmi.spec.architecture)
    if not settings.live_update or not known.cpu_hotplug or cpu is None or cpu.max_sockets:
        return vmi
    if cpu.sockets is None or cpu.sockets <= 0:
        return vmi
    if settings.max_cpu_sockets:
        return with_domain(vmi, cpu=replace(cpu, max_sockets=max(settings.max_cpu_sockets, cpu.sockets)))
    maximum = max(cpu.sockets, cpu.sockets * settings.max_hotplug_ratio)
    per_socket = max(1, (cpu.cores or 1) * (cpu.threads or 1))
    most = min(MAX_HOTPLUG_VCPUS, known.max_vcpus)
    if maximum * per_socket > most:
        maximum = max(most // per_socket, cpu.sockets)
    return with_domain(vmi, cpu=replace(cpu, max_sockets=maximum))


def memory_hotplug(vmi: VirtualMachineInstance, settings: DefaultsSettings) -> VirtualMachineInstance:
    """Memory can grow to four times its size if the guest is fit for it: amd64, 1 GiB and more, aligned."""
    memory = vmi.spec.domain.memory
    if not settings.live_update or memory is None or memory.max_guest is not None or memory.guest is None:
        return vmi
    maximum = settings.max_guest
    if maximum is None:
        size = memory.guest.bytes_floor() * settings.max_hotplug_ratio
        if not 0 < size <= LARGEST_MEMORY:
            return vmi
        maximum = _binary(size)
    known = architecture(vmi.spec.architecture)
    if maximum > LARGEST_MEMORY or memory_obstacles(vmi.spec.domain, known, maximum):
        return vmi
    return with_domain(vmi, memory=replace(memory, max_guest=maximum))


def _page_size(memory: Memory) -> Quantity | None:
    if memory.hugepages is None or not memory.hugepages.page_size:
        return None
    try:
        return Quantity(memory.hugepages.page_size)
    except ValueError:
        return None


def _binary(size: int) -> Quantity:
    """Spell a number of bytes with the largest suffix that keeps it exact: 4294967296 is 4Gi."""
    for suffix, unit in _SUFFIXES:
        if size % unit == 0:
            return Quantity(f"{size // unit}{suffix}")
    return Quantity(size)

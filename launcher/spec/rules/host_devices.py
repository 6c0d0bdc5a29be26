# SPDX-License-Identifier: Apache-2.0
"""Rules of devices that come from the node: GPUs, host devices, resource claims."""

from __future__ import annotations

from collections.abc import Iterator

from launcher.errors import Violation
from launcher.spec.model import GPU, HostDevice
from launcher.spec.rules.checks import at_most, dns_label, dns_subdomain, is_qualified_name, printable, unique
from launcher.spec.rules.context import DEVICES, Context, Rule
from launcher.spec.rules.devices import device_name
from launcher.spec.rules.disks import LONGEST_TAG, MOST
from launcher.spec.rules.finding import invalid, required
from launcher.spec.rules.networks import resource_claim


def host_devices(ctx: Context) -> Iterator[Violation]:
    """A device of the node has a name of its own, and is a resource or the result of a claim."""
    groups: tuple[tuple[str, tuple[GPU | HostDevice, ...]], ...] = (
        ("gpus", ctx.devices.gpus),
        ("hostDevices", ctx.devices.host_devices),
    )
    for group, items in groups:
        path = f"{DEVICES}.{group}"
        yield from at_most(path, items, MOST)
        yield from unique((f"{path}[{i}].name", item.name) for i, item in enumerate(items))
        for index, item in enumerate(items):
            yield from device_name(f"{path}[{index}].name", item.name)
            yield from printable(f"{path}[{index}].tag", item.tag, LONGEST_TAG)
            yield from _source(ctx, f"{path}[{index}]", item)


def vgpu_displays(ctx: Context) -> Iterator[Violation]:
    """One vGPU at most shows the boot screen: display and ramFB are on unless they say otherwise."""
    shown: list[str] = []
    for index, gpu in enumerate(ctx.devices.gpus):
        options = gpu.virtual_gpu_options
        display = options.display if options is not None else None
        if display is None or display.enabled is False:
            continue
        if display.ramfb is None or display.ramfb.enabled is not False:
            shown.append(f"{DEVICES}.gpus[{index}].virtualGPUOptions.display")
    for field in shown[1:]:
        yield invalid(f"{field}.ramFB", None, f"one display has ramFB; {shown[0]} has it already")


def claims(ctx: Context) -> Iterator[Violation]:
    """Resource claims have unique names and one source."""
    path = "spec.resourceClaims"
    yield from unique((f"{path}[{i}].name", claim.name) for i, claim in enumerate(ctx.spec.resource_claims))
    for index, claim in enumerate(ctx.spec.resource_claims):
        yield from dns_label(f"{path}[{index}].name", claim.name)
        name, template = claim.resource_claim_name, claim.resource_claim_template_name
        if not name and not template:
            yield required(f"{path}[{index}]", "needs resourceClaimName or resourceClaimTemplateName")
        if name and template:
            message = "resourceClaimName and resourceClaimTemplateName exclude each other"
            yield invalid(f"{path}[{index}].resourceClaimTemplateName", template, message)
        if name:
            yield from dns_subdomain(f"{path}[{index}].resourceClaimName", name)
        if template:
            yield from dns_subdomain(f"{path}[{index}].resourceClaimTemplateName", template)


def _source(ctx: Context, path: str, item: GPU | HostDevice) -> Iterator[Violation]:
    claimed = item.claim_name or item.request_name
    if item.device_name and claimed:
        yield invalid(f"{path}.deviceName", item.device_name, "deviceName and claimName exclude each other")
    elif item.device_name:
        if not is_qualified_name(item.device_name):
            yield invalid(
                f"{path}.deviceName", item.device_name, "not the name of a resource, such as example.com/gpu"
            )
    elif claimed:
        yield from resource_claim(ctx, path, item.claim_name, item.request_name)
    else:
        yield required(
            f"{path}.deviceName", "needs the name of a resource of the node, or claimName and requestName"
        )


RULES: tuple[Rule, ...] = (host_devices, vgpu_displays, claims)

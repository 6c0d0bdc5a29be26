# SPDX-License-Identifier: Apache-2.0
"""The host that ``translate`` and ``plan`` are told to assume: options, read into arguments."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import click

from launcher.plan.arch import AMD64, ARCHITECTURES
from launcher.plan.cpuset import parse_cpuset

Function = TypeVar("Function", bound=Callable[..., Any])


class Assumed(TypedDict):
    """Keyword arguments of ``launcher.domain.translate.translate``."""

    capabilities_xml: str | None
    domain_capabilities_xml: str | None
    cpuset: tuple[int, ...]
    emulation: bool
    block_claims: tuple[str, ...]
    architecture: str


def host_architecture() -> str:
    """The API's name of this machine's architecture; amd64 where the API has none for it."""
    return _API_NAMES.get(platform.machine(), AMD64.name)


class _Cpuset(click.ParamType[tuple[int, ...]]):
    name = "cpuset"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return parse_cpuset(str(value))
        except ValueError as error:
            self.fail(f"{error}; such as 4-11 or 2,4", param, ctx)


# Names that uname(2) gives.
_API_NAMES = {"x86_64": "amd64", "aarch64": "arm64", "s390x": "s390x"}
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)

arch_option = click.option(
    "--arch",
    "architecture",
    type=click.Choice(tuple(ARCHITECTURES)),
    default=host_architecture,
    help="Architecture of a manifest that names none. Default: this machine's.",
)
_OPTIONS = (
    arch_option,
    click.option("--capabilities", type=_FILE, help="What virsh capabilities prints on the host."),
    click.option("--domain-capabilities", type=_FILE, help="What virsh domcapabilities prints on the host."),
    click.option("--cpuset", type=_Cpuset(), default=(), help="pCPUs that may be dedicated, such as 4-11."),
    click.option("--emulation", is_flag=True, help="Without KVM: let QEMU emulate the CPU."),
    click.option("--block-claims", default="", metavar="A,B", help="Claims that are block devices."),
)


def host_options(function: Function) -> Function:
    """Add the options."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def assumed(
    capabilities: Path | None,
    domain_capabilities: Path | None,
    cpuset: tuple[int, ...],
    emulation: bool,
    block_claims: str,
    architecture: str,
) -> Assumed:
    """The options' values as arguments of translate."""
    return Assumed(
        capabilities_xml=capabilities.read_text() if capabilities else None,
        domain_capabilities_xml=domain_capabilities.read_text() if domain_capabilities else None,
        cpuset=cpuset,
        emulation=emulation,
        block_claims=tuple(claim for claim in block_claims.split(",") if claim),
        architecture=architecture,
    )

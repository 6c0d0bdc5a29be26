# SPDX-License-Identifier: Apache-2.0
"""Which name servers and search domains a guest is told. Pure, but that ``node_resolver`` reads a file."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

RESOLV_CONF: Final = (Path("/run/systemd/resolve/resolv.conf"), Path("/etc/resolv.conf"))
"""The first that lists a server which guests can reach, too: systemd-resolved's own address is a loopback."""
FALLBACK_SERVER: Final = "8.8.8.8"
FALLBACK_SEARCH: Final = "cluster.local"
"""What the API's reference gives to guests when its host has neither."""
_DOMAIN = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?(\.[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?)*"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolver:
    """Name servers and search domains in the order of their use."""

    nameservers: tuple[str, ...] = ()
    search: tuple[str, ...] = ()

    def before(self, nameservers: tuple[str, ...], search: tuple[str, ...]) -> Resolver:
        """These, then the given ones; each once."""
        return Resolver(
            nameservers=tuple(dict.fromkeys((*self.nameservers, *nameservers))),
            search=tuple(dict.fromkeys((*self.search, *(_clean(domain) for domain in search)))),
        )


def parse_resolv_conf(text: str) -> Resolver:
    """What resolv.conf(5) says, without servers that only this host reaches."""
    servers: list[str] = []
    search: tuple[str, ...] = ()
    for line in text.splitlines():
        match line.split():
            case ["nameserver", address, *_] if _is_reachable(address):
                servers.append(address)
            case ["search" | "domain", *domains]:
                search = tuple(clean for domain in domains if _DOMAIN.fullmatch(clean := _clean(domain)))
    return Resolver(nameservers=tuple(servers), search=search)


def node_resolver(files: tuple[Path, ...] = RESOLV_CONF) -> Resolver:
    """What this node uses; without any server, a public one."""
    found = Resolver()
    for file in files:
        try:
            found = parse_resolv_conf(file.read_text(errors="replace"))
        except OSError:
            continue
        if found.nameservers:
            break
    return Resolver(nameservers=found.nameservers or (FALLBACK_SERVER,), search=found.search)


def with_subdomain(search: tuple[str, ...], subdomain: str | None) -> tuple[str, ...]:
    """The search list of a guest with ``subdomain``: its own domain first, as a pod's DNS names it."""
    listed = search or (FALLBACK_SEARCH,)
    if subdomain is None:
        return listed
    services = [domain for domain in listed if ".svc." in f".{domain}."]
    base = max(services, key=len, default="")
    if not base or base.startswith(f"{subdomain}."):
        return listed
    return (f"{subdomain}.{base}", *listed)


def _clean(domain: str) -> str:
    return domain.rstrip(".").lower()


def _is_reachable(address: str) -> bool:
    try:
        return not ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False

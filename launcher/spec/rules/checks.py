# SPDX-License-Identifier: Apache-2.0
"""Checks of single values that many rules share: names, texts, paths, numbers, addresses, uniqueness."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Hashable, Iterable, Iterator, Sized
from typing import Final, TypeAlias

from launcher.errors import Violation
from launcher.spec.rules.finding import duplicate, invalid, keyed, required, unsupported

# What a check of one value finds: nothing, or the first thing that is wrong with it.
Found: TypeAlias = tuple[Violation, ...]

# Lengths of RFC 1123 names as Kubernetes uses them, and of label keys and values.
LONGEST_LABEL: Final = 63
LONGEST_SUBDOMAIN: Final = 253
UINT32: Final = 2**32 - 1

_LABEL: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PCI: Final = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7]")
# What names an image on this machine, as skopeo spells it.
_LOCAL_IMAGE: Final = re.compile(r"oci(?:-archive)?:(/.+)")
# An image reference: [registry[:port]/]path[:tag][@digest]. The registry decides about the rest.
_IMAGE: Final = re.compile(
    r"[A-Za-z0-9][A-Za-z0-9._-]*(?::[0-9]{1,5})?(?:/[A-Za-z0-9][A-Za-z0-9._-]*)*"
    r"(?::[A-Za-z0-9_][A-Za-z0-9._-]{0,127})?(?:@[A-Za-z0-9+._-]+:[0-9a-fA-F]{32,128})?"
)
_IMAGES: Final = "[registry/]path[:tag][@digest], oci:/directory[:tag] and oci-archive:/file[:tag]"
_LONGEST_IMAGE: Final = 512
_LONGEST_PATH: Final = 4096

A_LABEL: Final = "lower case letters, digits and '-', at most 63, starting and ending with a letter or digit"
A_SUBDOMAIN: Final = "lower case letters, digits, '-' and '.', at most 253, such as my-name.example"


def is_label(text: str) -> bool:
    """Whether the text is a DNS label as Kubernetes defines it (RFC 1123, lower case)."""
    return len(text) <= LONGEST_LABEL and _LABEL.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Whether the text is a DNS subdomain as Kubernetes defines it: labels joined by dots."""
    return len(text) <= LONGEST_SUBDOMAIN and _SUBDOMAIN.fullmatch(text) is not None


def is_qualified_name(text: str) -> bool:
    """Whether the text is a Kubernetes key: ``name`` or ``prefix/name``."""
    prefix, slash, name = text.rpartition("/")
    if slash and not is_subdomain(prefix):
        return False
    return len(name) <= LONGEST_LABEL and _QUALIFIED.fullmatch(name) is not None


def dns_label(field: str, value: str) -> Found:
    """The value must be a DNS label; it then is safe in XML, in file names and as an alias."""
    if is_label(value):
        return ()
    if not value:
        return (required(field, f"must not be empty; accepted are {A_LABEL}"),)
    return (invalid(field, value, f"not a DNS label; accepted are {A_LABEL}"),)


def dns_subdomain(field: str, value: str | None, what: str = "a name") -> Found:
    """The value must be present and a DNS subdomain: the name of a Kubernetes object."""
    if not value:
        return (required(field, f"needs {what}"),)
    if not is_subdomain(value):
        return (invalid(field, value, f"not a DNS subdomain; accepted are {A_SUBDOMAIN}"),)
    return ()


def printable(field: str, value: str | None, longest: int) -> Found:
    """The text must be one line without control characters, at most ``longest`` characters."""
    if not value:
        return ()
    if not value.isprintable():
        return (invalid(field, value, "must be one line of printable characters"),)
    if len(value) > longest:
        return (invalid(field, value, f"has {len(value)} characters; accepted are at most {longest}"),)
    return ()


def one_of(field: str, value: str | None, accepted: Collection[str], where: str = "") -> Found:
    """The value must be absent, empty or one of those accepted."""
    if value and value not in accepted:
        return (unsupported(field, value, accepted, where),)
    return ()


def in_range(field: str, value: int | None, low: int, high: int | None = None) -> Found:
    """The number must be absent or within the bounds, both included."""
    if value is None or (value >= low and (high is None or value <= high)):
        return ()
    accepted = f"{low} to {high}" if high is not None else f"{low} and more"
    return (invalid(field, value, f"out of range; accepted: {accepted}"),)


def absolute_path(field: str, value: str | None, what: str) -> Found:
    """The value must be the absolute path of something below the root, without ``..``."""
    if not value:
        return (required(field, f"needs the absolute path of {what}"),)
    if (
        not value.startswith("/")
        or not value.strip("/")
        or not value.isprintable()
        or len(value) > _LONGEST_PATH
        or ".." in value.split("/")
    ):
        return (invalid(field, value, f"must be the absolute path of {what}, without '..'"),)
    return ()


def image(field: str, value: str) -> Found:
    """The value must look like the reference of a container image, in a registry or on this machine."""
    if not value:
        return (required(field, "needs an image, such as registry.example/path:tag"),)
    local = _LOCAL_IMAGE.fullmatch(value)
    if local is not None:
        return absolute_path(field, local[1], "an OCI layout or archive")
    if len(value) > _LONGEST_IMAGE or _IMAGE.fullmatch(value.removeprefix("docker://")) is None:
        return (invalid(field, value, f"not an image reference; accepted are {_IMAGES}"),)
    return ()


def pci_address(field: str, value: str | None) -> Found:
    """The value must be absent or a PCI address."""
    if value is None or _PCI.fullmatch(value) is not None:
        return ()
    return (
        invalid(field, value, "not a PCI address; accepted is domain:bus:slot.function, as 0000:01:00.0"),
    )


def is_base64(text: str) -> bool:
    """Whether the text is base64 in the standard alphabet; line ends may be anywhere."""
    try:
        base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def unique(items: Iterable[tuple[str, Hashable]]) -> Iterator[Violation]:
    """No two of the (field, value) pairs may have the same value."""
    first: dict[Hashable, str] = {}
    for field, value in items:
        taken = first.setdefault(value, field)
        if taken is not field:
            yield duplicate(field, value, taken)


def at_most(field: str, items: Sized, most: int) -> Found:
    """The list must not have more than ``most`` items."""
    if len(items) > most:
        return (invalid(field, len(items), f"has {len(items)} items; accepted are at most {most}"),)
    return ()


def labels(field: str, values: dict[str, str]) -> Iterator[Violation]:
    """Keys and values must be what Kubernetes accepts as labels."""
    for key, value in values.items():
        if not is_qualified_name(key):
            yield invalid(
                keyed(field, key), key, "not a label key; accepted is [prefix/]name, as example.com/app"
            )
        if value and (len(value) > LONGEST_LABEL or _QUALIFIED.fullmatch(value) is None):
            yield invalid(
                keyed(field, key),
                value,
                "not a label value; accepted are letters, digits, '-', '_' and '.', at most 63, "
                "starting and ending with a letter or digit",
            )

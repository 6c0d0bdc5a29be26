# SPDX-License-Identifier: Apache-2.0
"""API objects as the tables, lists and documents that kubectl's users know. Pure: time is passed in."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

Object = Mapping[str, Any]
NONE = "<none>"
UNKNOWN = "<unknown>"

INSTANCE_COLUMNS = ("NAME", "AGE", "PHASE", "IP", "NODENAME", "READY")
INSTANCE_WIDE = ("LIVE-MIGRATABLE", "PAUSED")
MIGRATION_COLUMNS = ("NAME", "PHASE", "VMI")
MIGRATION_WIDE = ("AGE", "SOURCE", "TARGET")


def instance_row(vmi: Object, now: datetime, *, wide: bool) -> tuple[str, ...]:
    """The cells of INSTANCE_COLUMNS (and INSTANCE_WIDE)."""
    status = vmi.get("status", {})
    interfaces = status.get("interfaces") or [{}]
    cells = (
        name(vmi),
        age(vmi, now),
        status.get("phase", ""),
        interfaces[0].get("ipAddress", ""),
        status.get("nodeName", ""),
        condition(vmi, "Ready"),
    )
    return (*cells, condition(vmi, "LiveMigratable"), condition(vmi, "Paused")) if wide else cells


def migration_row(vmim: Object, now: datetime, *, wide: bool) -> tuple[str, ...]:
    """The cells of MIGRATION_COLUMNS (and MIGRATION_WIDE)."""
    status = vmim.get("status", {})
    state = status.get("migrationState", {})
    cells = (name(vmim), status.get("phase", ""), vmim.get("spec", {}).get("vmiName", ""))
    more = (age(vmim, now), state.get("sourceNode", ""), state.get("targetNode", ""))
    return (*cells, *more) if wide else cells


def name(item: Object) -> str:
    """The object's name."""
    found: str = item.get("metadata", {}).get("name", "")
    return found


def namespace(item: Object) -> str:
    """The object's namespace."""
    found: str = item.get("metadata", {}).get("namespace", "default")
    return found


def condition(item: Object, kind: str) -> str:
    """The status of a condition: True, False, Unknown or nothing."""
    for found in item.get("status", {}).get("conditions", ()):
        if found.get("type") == kind:
            value: str = found.get("status", "")
            return value
    return ""


def age(item: Object, now: datetime) -> str:
    """How long ago the object was created, as kubectl says it."""
    created = item.get("metadata", {}).get("creationTimestamp")
    if not created:
        return UNKNOWN
    try:
        seconds = int((now - datetime.fromisoformat(created)).total_seconds())
    except (ValueError, TypeError):  # no time stamp, or one without a zone
        return UNKNOWN
    return human_age(max(seconds, 0))


def human_age(seconds: int) -> str:
    """``human_age(75) == '75s'``, ``human_age(150) == '2m30s'``, ``human_age(7200) == '120m'``."""
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        rest = seconds % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if hours < 3:
        return f"{minutes}m"
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    return f"{days}d"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns as wide as needed and three spaces apart, empty cells empty, nothing after the last cell."""
    lines = [tuple(columns), *(tuple(row) for row in rows)]
    widths = [max(len(line[index]) for line in lines) for index in range(len(columns))]
    return "\n".join(line_of(line, widths) for line in lines)


def line_of(cells: Sequence[str], widths: Sequence[int]) -> str:
    """One line of a table."""
    return "   ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def documents(items: Sequence[Object], form: str, *, single: bool) -> str:
    """``yaml``, ``json`` or ``name``; several objects become a List, as kubectl prints them."""
    if form == "name":
        return "\n".join(f"{resource(item)}/{name(item)}" for item in items)
    value = items[0] if single else {"apiVersion": "v1", "items": list(items), "kind": "List", "metadata": {}}
    return (
        to_yaml(value) if form == "yaml" else json.dumps(value, indent=4, ensure_ascii=False, sort_keys=True)
    )


def resource(item: Object) -> str:
    """The name of the object's kind as ``-o name`` prints it."""
    kind = item.get("kind") or "VirtualMachineInstance"
    return f"{kind.lower()}.kubevirt.io"


def to_yaml(value: object) -> str:
    """YAML in block style, keys sorted as kubectl sorts them: a Struct on the wire has no order."""
    import yaml

    text: str = yaml.dump(
        value, Dumper=yaml.CSafeDumper, sort_keys=True, allow_unicode=True, default_flow_style=False
    )
    return text.rstrip("\n")

# SPDX-License-Identifier: Apache-2.0
"""Imports point one way: docs/architecture.md draws the chain, this table is it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "launcher"

PURE_LIBRARIES = {"msgspec", "yaml", "lxml"}
STDLIB_IO = {
    "asyncio",
    "fcntl",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "shutil",
    "signal",
    "socket",
    "sqlite3",
    "subprocess",
    "tempfile",
    "threading",
    "time",
}

# package -> what it may import of launcher (itself always)
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "units": set(),
    "v1": set(),
    "spec": {"errors", "units"},
    "plan": {"spec", "errors", "units"},
    "domain": {"plan", "spec", "errors", "units"},
    "explain": {"domain", "plan", "spec", "errors", "units"},
    "host": {"errors", "units"},
    "hypervisor": {"domain", "host", "errors", "units"},
    "storage": {"host", "plan", "spec", "errors", "units"},
    "network": {"host", "plan", "spec", "errors", "units"},
    "guest": {"host", "hypervisor.port", "plan", "spec", "errors", "units"},
    "console": {"host", "errors", "units"},
    "migration": {"hypervisor.port", "spec", "errors", "units"},
    "rpc": {"v1", "errors", "units"},
    "agent": {
        "migration",
        "storage",
        "network",
        "guest",
        "console",
        "hypervisor.port",
        "host",
        "domain",
        "plan",
        "spec",
        "rpc",
        "v1",
        "errors",
        "units",
    },
    "metrics": {"agent.port", "hypervisor.port", "host", "errors", "units", "spec"},
    "api": {
        "agent.port",
        "migration.peer",
        "migration.progress",
        "rpc",
        "v1",
        "host",
        "spec",
        "errors",
        "units",
    },
    "cli": {
        "rpc",
        "v1",
        "explain",
        "domain",
        "plan",
        "spec",
        "lab",
        "migration.replay",
        "migration.recording",
        "migration.rerun",
        "migration.curves",
        "errors",
        "units",
    },
    "lab": {"cli.client", "cli.progress", "rpc", "v1", "host", "spec", "errors", "units"},
}
PURE = {"errors", "units", "spec", "plan", "domain", "explain"}
PURE_OF_MIGRATION = {
    "policy",
    "ramp",
    "timeouts",
    "stall",
    "options",
    "sample",
    "recording",
    "rerun",
    "replay",
    "curves",
}
MIGRATION_IO = {"source", "target"}  # the engine; every other module of the package is a policy or a record
ONLY_IMPORTER = {"libvirt": "hypervisor", "libvirt_qemu": "hypervisor", "pyroute2": "network"}


def _modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if "v1" not in p.relative_to(PACKAGE).parts[:1])


def _name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def _imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(node.module or "")
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def _allowed(package: str, imported: str) -> bool:
    inner = imported.removeprefix("launcher.")
    if inner.split(".")[0] == package:
        return True
    return any(inner == rule or inner.startswith(f"{rule}.") for rule in MAY_IMPORT[package])


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_imports_point_down(path: Path) -> None:
    package = path.relative_to(PACKAGE).with_suffix("").parts[0]
    if package in {"__init__", "daemon"}:
        return
    assert package in MAY_IMPORT, (
        f"{package} has no place in the chain: add it to docs/architecture.md and here"
    )
    parents = {"launcher", "launcher.__version__"}
    parents |= {f"launcher.{rule.split('.')[0]}" for rule in MAY_IMPORT[package] if "." in rule}
    wrong = {
        name
        for name in _imports(path)
        if name.startswith("launcher") and name not in parents and not _allowed(package, name)
    }
    assert not wrong, f"{_name(path)} may not import {sorted(wrong)}"


def _needs(path: Path, known: set[str]) -> set[str]:
    """The modules that are run before ``path`` is; packages around it are at work already."""
    own = _name(path)
    body = ast.parse(path.read_text()).body
    found = {
        f"{node.module}.{alias.name}"
        for node in body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found |= {alias.name for node in body if isinstance(node, ast.Import) for alias in node.names}
    around = {name.rsplit(".", count)[0] for name in found for count in range(name.count(".") + 1)}
    return {name for name in around & known if not f"{own}.".startswith(f"{name}.")}


def test_any_module_may_be_imported_first() -> None:
    needs = {_name(path): _needs(path, {_name(other) for other in _modules()}) for path in _modules()}
    while ready := [name for name, needed in needs.items() if not needed & needs.keys()]:
        for name in ready:
            del needs[name]
    assert not needs, "each of these needs one that needs it, or waits for such"


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_libraries_have_one_importer(path: Path) -> None:
    package = path.relative_to(PACKAGE).with_suffix("").parts[0]
    roots = {name.split(".")[0] for name in _imports(path)}
    for library, owner in ONLY_IMPORTER.items():
        assert library not in roots or package == owner, f"only {owner} imports {library}"


@pytest.mark.parametrize("path", _modules(), ids=_name)
def test_pure_modules_do_no_io(path: Path) -> None:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    pure = parts[0] in PURE or (parts[0] == "migration" and parts[-1] in PURE_OF_MIGRATION)
    if not pure:
        return
    roots = {name.split(".")[0] for name in _imports(path)}
    assert not roots & STDLIB_IO, f"{_name(path)} is pure: no {sorted(roots & STDLIB_IO)}"
    calls = {
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert "open" not in calls
    assert "print" not in calls

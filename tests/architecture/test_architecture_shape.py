# SPDX-License-Identifier: Apache-2.0
"""Modules and classes stay small, and broad handlers stay where they belong."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted(p for p in (ROOT / "launcher").rglob("*.py") if "/v1/" not in str(p))
MAX_LINES = 420
MAX_PUBLIC_METHODS = 15
# Ports are inventories: one method for each thing that may be asked, in one place on purpose.
INVENTORIES = {"AgentPort", "Hypervisor", "LibvirtHypervisor", "NodeAgent"}
# The supervisor and the RPC boundary; a lane's thread hands whatever it caught to the caller, who raises it.
BROAD = {"launcher/agent/supervisor.py", "launcher/api/interceptors.py", "launcher/hypervisor/lanes.py"}
FORBIDDEN_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}


def _id(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=_id)
def test_module_is_small_and_says_what_it_is(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_LINES
    assert path.stem not in FORBIDDEN_NAMES
    if text.strip():
        assert ast.get_docstring(ast.parse(text)), "a module opens with what it does"


@pytest.mark.parametrize("path", MODULES, ids=_id)
def test_classes_are_small(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef) and node.name not in INVENTORIES:
            public = [
                item.name
                for item in node.body
                if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
                and not item.name.startswith("_")
                and not any(isinstance(d, ast.Name) and d.id == "property" for d in item.decorator_list)
            ]
            assert len(public) <= MAX_PUBLIC_METHODS, f"{node.name} has {len(public)} public methods"


@pytest.mark.parametrize("path", MODULES, ids=_id)
def test_broad_handlers_only_at_the_borders(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ExceptHandler):
            names = {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)} if node.type else {"all"}
            if names & {"Exception", "BaseException", "all"}:
                assert _id(path) in BROAD, f"line {node.lineno}: catch what you expect, not everything"


def test_libvirt_error_codes_are_translated_in_one_place() -> None:
    users = {
        _id(path)
        for path in MODULES
        if any(
            isinstance(node, ast.Attribute) and node.attr.startswith("VIR_ERR_")
            for node in ast.walk(ast.parse(path.read_text()))
        )
    }
    assert users <= {"launcher/hypervisor/translate.py"}

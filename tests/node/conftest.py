# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests on real nodes: each test process has labs of its own, so tests can run in parallel.

A test that stops daemons, cuts cables or caps rates must undo it or ask for labs of its own: ``fresh_lab``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack

import outcome
import pytest

from launcher.lab import image
from launcher.lab.image import Image
from launcher.lab.lab import Lab, missing
from launcher.lab.node import Node


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fixtures are to know, when they are torn down, whether their test failed."""
    report = yield
    outcome.note(item, report)
    return report


@pytest.fixture(scope="session")
def needs_nodes() -> None:
    """Skips, with the reason, where no node can run."""
    reason = missing()
    if reason:
        pytest.skip(f"no real nodes: {reason}")


@pytest.fixture(scope="session")
def lab(needs_nodes: None) -> Iterator[Lab]:
    """Nodes ``a`` and ``b`` with libvirtd and without agents, shared by all tests of this process."""
    with Lab(names=("a", "b")) as made:
        made.node("a")
        made.node("b")
        yield made


@pytest.fixture(scope="session")
def node_a(lab: Lab) -> Node:
    """Node ``a`` of ``lab``."""
    return lab.node("a")


@pytest.fixture(scope="session")
def node_b(lab: Lab) -> Node:
    """Node ``b`` of ``lab``."""
    return lab.node("b")


@pytest.fixture(scope="module")
def lab_with_agents(needs_nodes: None) -> Iterator[Lab]:
    """Nodes ``a`` and ``b`` of a lab of the module's own, each with libvirtd and agent."""
    with Lab(names=("a", "b")) as made:
        made.start_agents()
        yield made


@pytest.fixture
def fresh_lab(needs_nodes: None) -> Iterator[Callable[..., Lab]]:
    """Makes labs that only this test uses, with the nodes named; each is closed at the end."""
    with ExitStack() as stack:

        def make(*names: str) -> Lab:
            return stack.enter_context(Lab(names=names or ("a", "b")))

        yield make


@pytest.fixture(scope="session")
def guest_image(needs_nodes: None) -> Image:
    """The Linux guest for a kernel boot; every node sees its folder."""
    return image.guest()


@pytest.fixture(scope="session")
def bootsector_image(needs_nodes: None) -> Image:
    """The boot sector guest as a containerDisk; every node sees its folder."""
    return image.bootsector()

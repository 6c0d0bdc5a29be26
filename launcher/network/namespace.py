# SPDX-License-Identifier: Apache-2.0
"""Network namespaces kept by a mount, and work done inside one. Blocking; call it in a thread.

A thread that enters a namespace must never serve anybody else: each piece of work gets a thread of its own,
which ends with it. No process is forked.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from launcher.errors import HostUnsupported, LauncherError, NetworkError

T = TypeVar("T")

CLONE_NEWNET: Final = 0x40000000
MS_BIND: Final = 4096
MNT_DETACH: Final = 2
NS_GET_NSTYPE: Final = 0xB703
"""Linux, include/uapi/linux/sched.h, mount.h and nsfs.h."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_HINT = "the agent needs root with CAP_SYS_ADMIN and CAP_NET_ADMIN"


def is_kept(path: Path) -> bool:
    """Whether a namespace is mounted at ``path``."""
    try:
        return path.lstat().st_dev != path.parent.lstat().st_dev
    except OSError:
        return False


def is_namespace(path: Path) -> bool:
    """Whether ``path`` is a network namespace, mounted or in /proc."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return fcntl.ioctl(descriptor, NS_GET_NSTYPE) == CLONE_NEWNET
    except OSError:
        return False
    finally:
        os.close(descriptor)


def create(path: Path) -> None:
    """Make a network namespace and keep it at ``path``; one that is there stays.

    Raises:
        HostUnsupported: the agent lacks the privileges.
        NetworkError: it could not be mounted.
    """
    if is_kept(path):
        return
    try:
        path.touch(mode=0o600)
    except OSError as error:
        raise NetworkError("", f"{path} cannot be made: {error.strerror}") from error
    _in_thread(lambda: _unshare_and_mount(path))


def remove(path: Path) -> None:
    """Let the namespace at ``path`` go; with its last process and link it is gone."""
    while is_kept(path):
        if _LIBC.umount2(os.fsencode(path), MNT_DETACH) != 0:
            number = ctypes.get_errno()
            raise NetworkError("", f"{path} cannot be unmounted: {os.strerror(number)}", hint=_HINT)
    path.unlink(missing_ok=True)


def inside(path: Path | None, work: Callable[[], T]) -> T:
    """Do ``work`` in the namespace at ``path`` (None: the agent's own) and return what it returns.

    Raises:
        NetworkError: there is no namespace at ``path``.
    """
    if path is None:
        return work()
    if not is_namespace(path):
        raise NetworkError("", f"there is no network namespace at {path}")

    def enter_and_work() -> T:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _check(_LIBC.setns(descriptor, CLONE_NEWNET), "enter a network namespace")
        finally:
            os.close(descriptor)
        return work()

    return _in_thread(enter_and_work)


def set_sysctl(name: str, value: str) -> None:
    """Set ``net.NAME`` (written with slashes) of the calling thread's network namespace, unless it is so.

    Raises:
        HostUnsupported: the kernel does not have it, or /proc/sys may not be written.
    """
    path = Path("/proc/sys/net", name)
    try:
        if path.read_text().strip() != value:
            path.write_text(value)
    except OSError as error:
        raise HostUnsupported(
            f"the kernel setting net.{name.replace('/', '.')}",
            f"it cannot be set to {value}: {error.strerror}",
            hint="the agent must be able to write /proc/sys/net",
        ) from error


def _unshare_and_mount(path: Path) -> None:
    _check(_LIBC.unshare(CLONE_NEWNET), "make a network namespace")
    source = b"/proc/thread-self/ns/net"
    _check(_LIBC.mount(source, os.fsencode(path), b"none", MS_BIND, None), f"mount {path}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise HostUnsupported("network namespaces", f"cannot {what}: {os.strerror(number)}", hint=_HINT)


def _in_thread(work: Callable[[], T]) -> T:
    done: list[T] = []
    failed: list[Exception] = []

    def run() -> None:
        try:
            done.append(work())
        except (LauncherError, OSError, ValueError, LookupError) as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="network namespace", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]

# SPDX-License-Identifier: Apache-2.0
"""libnftables in this process: JSON in, JSON out (libnftables-json(5)). Blocking, one call at a time.

A context belongs to the network namespace of the thread that makes it, so each call makes one of its own.
"""

from __future__ import annotations

import ctypes
import functools
import json
import socket
import threading
from collections.abc import Sequence
from typing import Any, Final

from launcher.errors import HostUnsupported, NetworkError, TimedOut
from launcher.network.ruleset import Command

LIBRARY: Final = "libnftables.so.1"
OUTPUT_JSON: Final = 1 << 4
"""nftables, include/nftables/libnftables.h: NFT_CTX_OUTPUT_JSON, which also makes input be read as JSON."""
NETLINK_NETFILTER: Final = 12
"""Linux, include/uapi/linux/netlink.h."""
LOCK_TIMEOUT_S: Final = 25.0
NOT_THERE: Final = "No such file or directory"

_HINT: Final = "the agent needs CAP_NET_ADMIN, and the kernel nf_tables with nft_nat and netdev ingress"
_ONE_AT_A_TIME = threading.Lock()
"""The library counts its contexts without a lock."""


class NothingThere(NetworkError):
    """What a command names does not exist."""


def carry_out(network: str, commands: Sequence[Command]) -> list[dict[str, Any]]:
    """Carry out all of ``commands`` or none, in the calling thread's namespace; returns what they list.

    Raises:
        NothingThere: a table, chain or link does not exist.
        NetworkError: the kernel refuses, in the library's words.
        HostUnsupported: there is no libnftables, or the kernel has no nf_tables.
        TimedOut: another call does not end.
    """
    library = _library()
    _require_netlink()
    if not _ONE_AT_A_TIME.acquire(timeout=LOCK_TIMEOUT_S):
        raise TimedOut(f"nftables was busy for {LOCK_TIMEOUT_S:g} s")
    try:
        status, output, complaint = _call(library, json.dumps({"nftables": list(commands)}).encode())
    finally:
        _ONE_AT_A_TIME.release()
    if status != 0:
        text = complaint.removeprefix("internal:0:0-0: ").strip()[-300:]
        kind = NothingThere if NOT_THERE in text else NetworkError
        raise kind(network, f"nftables refuses the rules: {text}", hint=_HINT)
    listed = json.loads(output)["nftables"] if output else []
    return [dict(one) for one in listed]


def _call(library: ctypes.CDLL, text: bytes) -> tuple[int, str, str]:
    context = library.nft_ctx_new(0)
    if not context:
        return -1, "", "no memory for a context"
    try:
        library.nft_ctx_output_set_flags(context, OUTPUT_JSON)
        library.nft_ctx_buffer_output(context)
        library.nft_ctx_buffer_error(context)
        status = int(library.nft_run_cmd_from_buffer(context, text))
        output = library.nft_ctx_get_output_buffer(context) or b""
        complaint = library.nft_ctx_get_error_buffer(context) or b""
        return status, output.decode(errors="replace"), complaint.decode(errors="replace")
    finally:
        library.nft_ctx_free(context)


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise HostUnsupported(LIBRARY, f"{error}", hint="install libnftables1 (nftables)") from error
    library.nft_ctx_new.restype = ctypes.c_void_p
    library.nft_ctx_new.argtypes = [ctypes.c_uint32]
    library.nft_ctx_output_set_flags.argtypes = [ctypes.c_void_p, ctypes.c_uint]
    library.nft_run_cmd_from_buffer.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    library.nft_ctx_free.argtypes = [ctypes.c_void_p]
    for name in ("nft_ctx_buffer_output", "nft_ctx_buffer_error"):
        getattr(library, name).argtypes = [ctypes.c_void_p]
    for name in ("nft_ctx_get_output_buffer", "nft_ctx_get_error_buffer"):
        getattr(library, name).restype = ctypes.c_char_p
        getattr(library, name).argtypes = [ctypes.c_void_p]
    return library


def _require_netlink() -> None:
    """The library ends the whole process when it gets no such socket."""
    try:
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER).close()
    except OSError as error:
        raise HostUnsupported("a kernel with nf_tables", f"no netlink: {error.strerror}") from error

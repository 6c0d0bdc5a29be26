# SPDX-License-Identifier: Apache-2.0
"""Running programs: results, deadlines, limits, and nothing left behind."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from launcher.errors import CommandFailed, HostUnsupported, TimedOut
from launcher.host.run import Limits, run

LONG_S = 30.0


async def test_returns_what_was_written() -> None:
    done = await run(["sh", "-c", "cat; echo err >&2"], stdin=b"in\xff", timeout_s=LONG_S)
    assert (done.status, done.stdout, done.stderr) == (0, b"in\xff", b"err\n")
    assert done.text == "in�"


async def test_a_status_is_an_error_unless_asked_for() -> None:
    argv = ["sh", "-c", "echo first >&2; echo last words >&2; exit 3"]
    with pytest.raises(CommandFailed, match="sh ended with status 3: first\nlast words") as raised:
        await run(argv, timeout_s=LONG_S)
    assert (raised.value.argv, raised.value.status) == (tuple(argv), 3)
    assert (await run(argv, timeout_s=LONG_S, check=False)).status == 3
    assert (await run(["sh", "-c", "kill -9 $$"], timeout_s=LONG_S, check=False)).status == -9


async def test_no_shell_reads_the_arguments() -> None:
    assert (await run(["printf", "%s", "$HOME; `id` *"], timeout_s=LONG_S)).text == "$HOME; `id` *"


async def test_a_program_that_is_not_there() -> None:
    with pytest.raises(HostUnsupported, match="no-such-program"):
        await run(["no-such-program"], timeout_s=LONG_S)


async def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF not really")
    broken.chmod(0o700)
    with pytest.raises(CommandFailed, match="cannot be run"):
        await run([broken], timeout_s=LONG_S)
    with pytest.raises(CommandFailed, match="cannot be run"):
        await run(["true"], cwd=tmp_path / "missing", timeout_s=LONG_S)


async def test_the_environment_is_the_one_given(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "ONLY": "this"}
    assert "ONLY=this" in (await run(["env"], env=env, timeout_s=LONG_S)).text.split()
    assert "HOME=" not in (await run(["env"], env=env, timeout_s=LONG_S)).text
    assert (await run(["pwd"], cwd=tmp_path, timeout_s=LONG_S)).text.strip() == str(tmp_path)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


async def _read_pid(path: Path) -> int:
    async with asyncio.timeout(LONG_S):
        while not (path.exists() and path.read_text().endswith("\n")):
            await asyncio.sleep(0.01)
    return int(path.read_text())


async def _gone(pid: int) -> None:
    async with asyncio.timeout(LONG_S):
        while _alive(pid):
            await asyncio.sleep(0.01)


async def test_the_deadline_ends_the_whole_group(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! > {tmp_path}/pid; echo busy >&2; wait"
    with pytest.raises(TimedOut, match=r"sh did not end within 1 s: busy"):
        await run(["sh", "-c", script], timeout_s=1)
    await _gone(await _read_pid(tmp_path / "pid"))


async def test_a_closed_pipe_does_not_end_the_deadline() -> None:
    with pytest.raises(TimedOut):
        await run(["sh", "-c", "exec sleep 60 >&- 2>&-"], timeout_s=0.2)


async def test_cancelling_ends_the_whole_group(tmp_path: Path) -> None:
    script = f"sleep 60 & echo $! > {tmp_path}/pid; wait"
    task = asyncio.create_task(run(["sh", "-c", script], timeout_s=LONG_S))
    child = await _read_pid(tmp_path / "pid")
    assert _alive(child)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await _gone(child)


async def test_too_much_output_ends_it() -> None:
    with pytest.raises(CommandFailed, match="wrote more than 100000 bytes"):
        await run(["yes"], stdout_limit=100_000, timeout_s=LONG_S)


async def test_of_errors_the_end_is_kept() -> None:
    script = "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done >&2"
    done = await run(["sh", "-c", script], timeout_s=LONG_S)
    assert len(done.stderr) == 64 * 1024
    assert done.stderr.endswith(b"line 19999\n")


async def test_unread_input_is_no_error() -> None:
    assert (await run(["true"], stdin=b"x" * 1_000_000, timeout_s=LONG_S)).status == 0


async def test_limits_hold_before_the_program_begins() -> None:
    limits = Limits(open_files=17, file_size_bytes=512 * 8, cpu_s=5, address_space_bytes=1 << 30)
    done = await run(
        ["sh", "-c", "ulimit -n; ulimit -f; ulimit -t; ulimit -v"], limits=limits, timeout_s=LONG_S
    )
    assert done.text.split() == ["17", "8", "5", str((1 << 30) // 1024)]
    with pytest.raises(CommandFailed, match=r"^sh ended with status 4"):
        await run(["sh", "-c", "exit 4"], limits=limits, timeout_s=LONG_S)
    assert Limits().prefix() == ()


async def test_the_log_shows_a_line_to_copy(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="launcher.host.run"):
        await run(["echo", "two words", "it's"], timeout_s=LONG_S)
    assert [vars(record)["fields"] for record in caplog.records] == [
        {"command": """echo 'two words' 'it'"'"'s'"""}
    ]

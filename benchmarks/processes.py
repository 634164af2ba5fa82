"""Servers as process trees: started with a log, stopped for certain, and what they use (Linux, /proc)."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

STOP_S = 10
PROC = Path("/proc")


class CommandFailed(Exception):
    """A command that did not end well, or in time; says how, with its last line."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def running(
    command: list[str], folder: Path, log: Path, environment: Mapping[str, str], cores: set[int]
) -> Iterator[subprocess.Popen[bytes]]:
    """A server on some cores, in a session of its own, in `folder`, writing stdout and stderr to `log`; the
    whole session is ended on leaving."""
    # The child inherits them before it has a thread.
    with log.open("wb") as output, pinned(cores):
        process = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _end(process)


@contextlib.contextmanager
def pinned(cores: set[int]) -> Iterator[None]:
    """Keeps this thread, and what it starts meanwhile, to some cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def finish(command: list[str], limit_s: float) -> str:
    """Runs a command to its end and gives what it printed. Raises CommandFailed."""
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise CommandFailed(f"{Path(command[0]).name} did not end within {limit_s:g} s") from None
        finally:
            _end(process)
    if process.returncode:
        raise CommandFailed(f"{Path(command[0]).name} failed: {last_line(printed)}")
    return printed


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def _end(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)


def tree(pid: int) -> list[int]:
    """A process and its descendants, as far as they are alive."""
    found, wanted = [], [pid]
    while wanted:
        found.append(wanted.pop())
        with contextlib.suppress(OSError):
            for thread in (PROC / str(found[-1]) / "task").iterdir():
                wanted += [int(child) for child in (thread / "children").read_text().split()]
    return found


def cpu_ns(pid: int) -> dict[int, int]:
    """Time on a CPU so far of every thread of a process tree, in nanoseconds (schedstat)."""
    spent = {}
    for member in tree(pid):
        with contextlib.suppress(OSError):
            for thread in (PROC / str(member) / "task").iterdir():
                with contextlib.suppress(OSError):
                    spent[int(thread.name)] = int((thread / "schedstat").read_text().split()[0])
    return spent


def cpu_between_us(before: Mapping[int, int], after: Mapping[int, int]) -> float:
    """Microseconds that threads alive at the end spent in between; what ended meanwhile is not seen."""
    return sum(spent - before.get(thread, 0) for thread, spent in after.items()) / 1e3


def memory_mib(pid: int) -> dict[str, float]:
    """`rss` and `pss` (shared pages divided among those who map them) of a process tree."""
    totals = {"Rss": 0, "Pss": 0}
    for member in tree(pid):
        with contextlib.suppress(OSError):
            for line in (PROC / str(member) / "smaps_rollup").read_text().splitlines():
                name = line.partition(":")[0]
                if name in totals:
                    totals[name] += int(line.split()[1])
    return {name.lower(): round(kib / 1024, 1) for name, kib in totals.items()}

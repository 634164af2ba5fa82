"""Looks inside a server that does not know of it: tasks, flights, live objects by type, where memory went.

`environment` makes a Python process load this module as it starts; at every SIGUSR1 it then writes a census
to a file. For finding out why memory grows: the plain soak goes without.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import time
import tracemalloc
from asyncio import Task
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_FILE = "LOCKGATE_SOAK_CENSUS"
_TRACED = "LOCKGATE_SOAK_TRACED"
_LIMIT_S = 60.0
_MIB = 2**20


class _Mallinfo(ctypes.Structure):
    """glibc's mallinfo2: https://man7.org/linux/man-pages/man3/mallinfo.3.html"""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def environment(folder: Path, root: Path, *, traced: bool) -> dict[str, str]:
    """What a server's environment needs beside its own. `traced`: Python's memory is traced too, at a third
    of the speed."""
    (folder / "sitecustomize.py").write_text("from benchmarks import soak_probe\nsoak_probe.install()\n")
    return {
        "PYTHONPATH": f"{folder}{os.pathsep}{root}",
        _FILE: str(folder / "census.json"),
        _TRACED: "1" if traced else "",
    }


def census(pid: int, folder: Path) -> dict[str, Any]:
    """Asks a server for its census and waits for it. Raises TimeoutError."""
    path = folder / "census.json"
    path.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR1)
    deadline = time.monotonic() + _LIMIT_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no census within {_LIMIT_S:g} s")
        time.sleep(0.05)
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def growth(before: Mapping[str, Any], after: Mapping[str, Any], top: int = 25) -> dict[str, Any]:
    """What became more from one census to another: the numbers, and of types and lines the most grown."""

    def grown(name: str) -> dict[str, float]:
        counts = {key: after[name].get(key, 0) - before[name].get(key, 0) for key in after[name]}
        most = sorted(counts.items(), key=lambda item: -item[1])[:top]
        return {key: round(count, 1) for key, count in most if count > 0}

    numbers = {key: round(after[key] - before[key], 2) for key in after if not isinstance(after[key], dict)}
    return {**numbers, "tasks": grown("tasks"), "types": grown("types"), "kib_by_line": grown("kib_by_line")}


def install() -> None:
    """In the server: answers SIGUSR1 from now on."""
    path = os.environ.pop(_FILE, None)  # its children are not asked
    if path is None:
        return
    if os.environ.pop(_TRACED, ""):
        tracemalloc.start()

    def answer(*_: object) -> None:
        part = Path(f"{path}.part")
        part.write_text(json.dumps(_census()))
        part.rename(path)

    signal.signal(signal.SIGUSR1, answer)


def _census() -> dict[str, Any]:
    """`tasks` not done by coroutine, `types` alive by name, numbers; garbage is collected first."""
    collected = gc.collect()
    tasks: Counter[str] = Counter()
    types: Counter[str] = Counter()
    for thing in gc.get_objects():
        kind = type(thing)
        types[f"{kind.__module__}.{kind.__qualname__}"] += 1
        if isinstance(thing, Task) and not thing.done():
            tasks[getattr(thing.get_coro(), "__qualname__", "?")] += 1
    return {
        "collected": collected,
        "flights": types["gateway.single_flight.Flight"],
        "objects": types.total(),
        "python_blocks": sys.getallocatedblocks(),
        **_malloc(),
        "tasks": dict(tasks),
        "types": dict(types),
        "kib_by_line": _lines(),
    }


def _malloc() -> dict[str, float]:
    """What malloc has handed out, and what it holds but has free; {} with another libc than glibc."""
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        return {}
    mallinfo.restype = _Mallinfo
    told = mallinfo()
    return {
        "malloc_used_mib": round((told.uordblks + told.hblkhd) / _MIB, 2),
        "malloc_free_mib": round(told.fordblks / _MIB, 2),
    }


def _lines() -> dict[str, float]:
    if not tracemalloc.is_tracing():
        return {}
    found = tracemalloc.take_snapshot().statistics("lineno")
    return {f"{line.traceback[0].filename}:{line.traceback[0].lineno}": line.size / 1024 for line in found}

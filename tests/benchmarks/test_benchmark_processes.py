"""Process trees: ended for certain, and measured whole."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from benchmarks.processes import (
    PROC,
    CommandFailed,
    cpu_between_us,
    cpu_ns,
    finish,
    last_line,
    memory_mib,
    pinned,
    running,
    tree,
)

# Writes the pid of a child that sleeps, then works until told to go on, then waits.
BUSY = """
import pathlib, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
end = time.process_time() + 0.05
while time.process_time() < end:
    pass
print(child.pid, flush=True)
time.sleep(60)
"""


def wait_for_line(log: Path) -> str:
    deadline = time.monotonic() + 30
    while not (text := log.read_text()).endswith("\n"):
        assert time.monotonic() < deadline
    return text.strip()


def wait_for_end(pid: int) -> None:
    deadline = time.monotonic() + 30
    while (stat := PROC / str(pid) / "stat").exists() and stat.read_text().rpartition(")")[2].split()[
        0
    ] != "Z":
        assert time.monotonic() < deadline


def test_a_tree_is_seen_measured_and_ended_with_its_children(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running([sys.executable, "-c", BUSY], tmp_path, log, {}, os.sched_getaffinity(0)) as process:
        child = int(wait_for_line(log))
        assert tree(process.pid) == [process.pid, child]
        spent = cpu_ns(process.pid)
        assert spent.keys() >= {process.pid, child}
        assert cpu_between_us({}, spent) >= 50_000
        assert cpu_between_us(spent, spent) == 0
        memory = memory_mib(process.pid)
        assert 1 < memory["pss"] <= memory["rss"]
    assert process.poll() is not None
    wait_for_end(child)


def test_a_server_runs_on_the_cores_that_it_is_given_and_we_keep_ours(tmp_path: Path) -> None:
    ours = os.sched_getaffinity(0)
    wanted = {max(ours)}
    log = tmp_path / "log"
    command = [sys.executable, "-c", "import os; print(os.sched_getaffinity(0), flush=True)"]
    with running(command, tmp_path, log, {}, wanted):
        assert wait_for_line(log) == str(wanted)
    assert os.sched_getaffinity(0) == ours


def test_pinning_ends_with_its_block() -> None:
    ours = os.sched_getaffinity(0)
    with pinned({min(ours)}):
        assert os.sched_getaffinity(0) == {min(ours)}
    assert os.sched_getaffinity(0) == ours


def test_a_command_gives_what_it_printed() -> None:
    assert finish([sys.executable, "-c", "print('done')"], 60) == "done\n"


def test_a_command_that_fails_says_its_last_line() -> None:
    with pytest.raises(CommandFailed, match="failed: no such thing"):
        finish([sys.executable, "-c", "raise SystemExit('first\\nno such thing')"], 60)


def test_a_command_that_does_not_end_is_ended() -> None:
    with pytest.raises(CommandFailed, match=r"did not end within 0\.2 s"):
        finish([sys.executable, "-c", "import time; time.sleep(60)"], 0.2)


def test_silence_is_a_last_line_too() -> None:
    assert last_line(" \n") == "it printed nothing"

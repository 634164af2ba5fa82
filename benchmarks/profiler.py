"""Where a running Python process spends its own time: py-spy's samples of its main thread."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.peers import Peer, Unavailable, install
from benchmarks.processes import CommandFailed, finish

PY_SPY = Peer(name="py-spy", home="py-spy", requirement="py-spy==0.4.3")
SAMPLES_PER_S = 200
TOP = 10
# A line of py-spy's raw form: the thread's label, frames inwards as `function (file:line)`, a count.
_STACK = re.compile(r"thread \(\w+\): MainThread;.*?([^;]+) \(([^;()]+?)(?::\d+)?\) (\d+)")


def profile(pid: int, seconds: float) -> str:
    """Own time over the next `seconds`, as text. Raises Unavailable: watching another process needs root, or
    kernel.yama.ptrace_scope = 0."""
    spy = install(PY_SPY) / "bin" / "py-spy"
    with tempfile.TemporaryDirectory() as folder:
        stacks = Path(folder) / "stacks.txt"
        options = ["--threads", "--format", "raw", "--output", str(stacks)]
        options += ["--rate", str(SAMPLES_PER_S), "--duration", str(round(seconds))]
        try:
            finish([str(spy), "record", *options, "--pid", str(pid)], limit_s=seconds + 30)
        except CommandFailed as failure:
            raise Unavailable(f"no profile: {failure}") from None
        return told(stacks.read_text())


def own_time(stacks: str) -> tuple[Counter[str], Counter[str]]:
    """Samples of the main thread by innermost function, and by the package that it belongs to."""
    functions: Counter[str] = Counter()
    packages: Counter[str] = Counter()
    for line in stacks.splitlines():
        if found := _STACK.fullmatch(line):
            function, file, count = found[1], found[2], int(found[3])
            functions[f"{function} ({file})"] += count
            packages[file.partition("/")[0]] += count
    return functions, packages


def told(stacks: str) -> str:
    functions, packages = own_time(stacks)
    total = functions.total() or 1
    lines = [f"own time of the main thread: {total} samples, {SAMPLES_PER_S} a second"]
    for counted in (functions, packages):
        lines += ["", *(f"{count / total:6.1%}  {name}" for name, count in counted.most_common(TOP))]
    return "\n".join(lines) + "\n"

"""Where a running Python process spends its own time: py-spy's samples, counted by function."""

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
_LINE_NUMBER = re.compile(r":\d+\)$")


def profile(pid: int, seconds: float) -> str:
    """The functions with most own time over the next `seconds`, as text. Raises Unavailable: watching another
    process needs root, or kernel.yama.ptrace_scope = 0."""
    spy = install(PY_SPY) / "bin" / "py-spy"
    with tempfile.TemporaryDirectory() as folder:
        stacks = Path(folder) / "stacks.txt"
        options = ["--format", "raw", "--rate", str(SAMPLES_PER_S), "--duration", str(round(seconds))]
        try:
            finish(
                [str(spy), "record", *options, "--output", str(stacks), "--pid", str(pid)],
                limit_s=seconds + 30,
            )
        except CommandFailed as failure:
            raise Unavailable(f"no profile: {failure}") from None
        return told(stacks.read_text())


def own_time(stacks: str) -> Counter[str]:
    """Samples by innermost function, from lines of `outer;inner;innermost COUNT`."""
    own: Counter[str] = Counter()
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        own[_LINE_NUMBER.sub(")", stack.rpartition(";")[2])] += int(count)
    return own


def told(stacks: str) -> str:
    own = own_time(stacks)
    total = own.total() or 1
    lines = [f"own time of {total} samples, {SAMPLES_PER_S} a second"]
    lines += [f"{count / total:6.1%}  {function}" for function, count in own.most_common(TOP)]
    return "\n".join(lines) + "\n"

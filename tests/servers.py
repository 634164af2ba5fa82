"""`lockgate serve` in a process of its own, as a user runs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

START_TIMEOUT_S = 180  # the first start converts the embedding model
LISTENING = re.compile(r"^listening\s+(http://\S+)")


class Server:
    """One running gateway. `lines` is what it has written to stderr so far."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self.url = ""
        self._listening = threading.Event()
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._listening.wait(START_TIMEOUT_S)
        if not self.url:
            process.kill()
            raise AssertionError("the server did not start:\n" + "".join(self.lines))

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stderr:
            for line in stderr:
                with self._news:
                    self.lines.append(line)
                    self._news.notify_all()
                if found := LISTENING.match(line):
                    self.url = found[1]
                    self._listening.set()
        self._listening.set()

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def line_with(self, text: str, timeout_s: float = 10.0) -> str:
        """The first line that holds `text`; waits for it."""

        def found() -> str | None:
            return next((line for line in self.lines if text in line), None)

        with self._news:
            line = self._news.wait_for(found, timeout_s)
        assert line is not None, f"no line with {text}"
        return line

    def kill(self) -> None:
        """As a crash or `kill -9` would."""
        self.process.kill()
        self.process.wait(10)
        self._reader.join(10)

    def stop(self) -> int:
        """As an operator would; returns the exit status."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(30)
        self._reader.join(10)
        return status


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "gateway", *arguments]


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """A user with an empty home and no API keys. Converted models are shared: they take a while."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    return {**kept, "HOME": str(home), "LOCKGATE_CACHE_DIR": cache_dir(), **(extra or {})}


def cache_dir() -> str:
    import platformdirs

    return os.environ.get("LOCKGATE_CACHE_DIR") or platformdirs.user_cache_dir("lockgate")


@contextmanager
def serving(home: Path, *arguments: str, extra: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A server on a free port, with its working directory and home in `home`."""
    process = subprocess.Popen(
        command("serve", "--port", "0", *arguments),
        cwd=home,
        env=environment(home, extra),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    server: Server | None = None
    try:
        server = Server(process)
        yield server
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(10)
        if server is not None:
            server._reader.join(10)

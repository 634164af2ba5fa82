"""The worker process: `python -m backends.batched.worker FD`, an engine behind one end of a socket pair.

It ends when the other end closes, whatever the engine is doing, so that it never outlives its gateway.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable

from backends.batched import engines, frames
from backends.batched.config import BatchedConfig
from backends.errors import EngineUnavailable
from backends.protocols import Engine, Failure, Piece

_PR_SET_PDEATHSIG = 1


class Mouth:
    """Frames to the gateway, from any thread."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._lock = threading.Lock()

    def say(self, frame: frames.FromWorker) -> None:
        data = frames.encode(frame)
        with self._lock:
            try:
                self._sock.sendall(data)
            except OSError:
                os._exit(0)  # nobody listens any more

    def emit(self, event: Piece | Failure) -> None:
        self.say(frames.Progress(event) if isinstance(event, Piece) else frames.Failed(event))


def die_with_parent() -> None:
    """The end of the socket ends a healthy worker; the kernel ends a stopped or wedged one (Linux only,
    prctl(2))."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def serve(sock: socket.socket, build: Callable[[BatchedConfig], Engine]) -> None:
    """Obey frames until the stream ends."""
    mouth = Mouth(sock)
    first = frames.read_to_worker(sock)
    if not isinstance(first, frames.Start):
        return
    try:
        engine = build(first.config)
        info = engine.start()
    except EngineUnavailable as error:
        mouth.say(frames.Unavailable(str(error)))
        return
    mouth.say(frames.Ready(info))
    while (frame := frames.read_to_worker(sock)) is not None:
        match frame:
            case frames.Submit(job=job):
                engine.submit(job, mouth.emit)
            case frames.Cancel(job_id=job_id):
                engine.cancel(job_id)
            case frames.Ping():
                mouth.say(frames.Pong(engine.load()))
            case frames.Start():
                return


def main(build: Callable[[BatchedConfig], Engine] = engines.build) -> None:
    die_with_parent()
    serve(socket.socket(fileno=int(sys.argv[1])), build)
    sys.stderr.flush()
    # Not a normal exit: engine threads may be deep in native code and nobody waits for what they do.
    os._exit(0)


if __name__ == "__main__":
    main()

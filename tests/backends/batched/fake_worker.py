"""A worker process whose engine does what the last message says: the real worker around a FakeEngine.

`words N GAP_S`, `wait` (for ever), `refuse`, `break`, `die`, `die once PATH`, `speak then die`. A model named
`missing` is not there; `missing after PATH` is there for the first start only.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from backends.batched import worker
from backends.batched.config import BatchedConfig
from backends.errors import EngineUnavailable
from backends.protocols import EngineInfo, Failure, Job, Load, Piece

EXIT_CODE = 7


class FakeEngine:
    def __init__(self, config: BatchedConfig) -> None:
        self._config = config
        self._running: set[int] = set()

    def start(self) -> EngineInfo:
        print(f"loading {self._config.model}", file=sys.stderr, flush=True)
        if self._config.model == "missing":
            raise EngineUnavailable("the model is missing: pip install it")
        if self._config.model.startswith("missing after "):
            _die_unless_first(Path(self._config.model.removeprefix("missing after ")))
        if self._config.model == "dies":
            print("the last words", file=sys.stderr, flush=True)
            os._exit(EXIT_CODE)
        if self._config.model == "never":
            threading.Event().wait()
        return EngineInfo(engine="fake", model="fake", context_tokens=64, max_batch=self._config.max_batch)

    def submit(self, job: Job, emit: Callable[[Piece | Failure], None]) -> None:
        self._running.add(job.id)
        threading.Thread(target=self._obey, args=(job, emit), daemon=True).start()

    def cancel(self, job_id: int) -> None:
        self._running.discard(job_id)

    def load(self) -> Load:
        return Load(queued=0, running=len(self._running), kv_usage=len(self._running) / 10)

    def close(self) -> None:
        self._running.clear()

    def _obey(self, job: Job, emit: Callable[[Piece | Failure], None]) -> None:
        match job.messages[-1]["content"].split():
            case ["words", count, gap_s]:
                self._speak(job, emit, int(count), float(gap_s))
            case ["refuse"]:
                emit(Failure(job_id=job.id, kind="invalid", message="does not fit", param="messages"))
            case ["break"]:
                emit(Failure(job_id=job.id, kind="engine", message="out of order"))
            case ["die"]:
                os._exit(EXIT_CODE)
            case ["die", "once", path]:
                if not Path(path).exists():
                    Path(path).touch()
                    os._exit(EXIT_CODE)
                self._speak(job, emit, 2, 0.0)
            case ["speak", "then", "die"]:
                emit(Piece(job_id=job.id, text="half "))
                time.sleep(0.05)
                os._exit(EXIT_CODE)
            case ["wait"]:
                return
        self._running.discard(job.id)

    def _speak(self, job: Job, emit: Callable[[Piece | Failure], None], count: int, gap_s: float) -> None:
        for at in range(count):
            time.sleep(gap_s)
            if job.id not in self._running:
                return
            emit(Piece(job_id=job.id, text=f"w{at} "))
        emit(Piece(job_id=job.id, finish_reason="stop", prompt_tokens=3, completion_tokens=count))


def _die_unless_first(path: Path) -> None:
    if path.exists():
        raise EngineUnavailable("the model has gone: pip install it")
    path.touch()


if __name__ == "__main__":
    worker.main(FakeEngine)

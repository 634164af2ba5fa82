"""The thread that gives partitions their new form."""

from __future__ import annotations

import logging
import threading
import weakref

from embeddings.index_partition import Partition

END_WITHIN_S = 10.0

logger = logging.getLogger(__name__)


class _Stopped(Exception):
    """The process ends."""


class IndexBuilder:
    """At most one daemon thread, which lives while there is work. A partition whose rebuild fails stays as
    it was until it is twice as large."""

    def __init__(self, writing: threading.Lock) -> None:
        self._writing = writing
        self._waiting: dict[int, Partition] = {}  # by identity, in order
        self._failed_at: weakref.WeakKeyDictionary[Partition, int] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._idle = threading.Event()
        self._idle.set()
        self._stopping = threading.Event()
        # a thread inside FAISS must not outlive the interpreter
        weakref.finalize(self, _end, self._stopping, self._idle)

    def consider(self, partition: Partition) -> None:
        """Rebuild it when it is due. Cheap; called after every write."""
        if not partition.due() or len(partition) < 2 * self._failed_at.get(partition, 0):
            return
        with self._lock:
            if self._stopping.is_set():
                return
            self._waiting.setdefault(id(partition), partition)
            if self._idle.is_set():
                self._idle.clear()
                threading.Thread(target=self._work, name="lockgate-index-build", daemon=True).start()

    def wait(self, timeout_s: float) -> bool:
        """Until nothing is left to build; False when that takes longer."""
        return self._idle.wait(timeout_s)

    def _work(self) -> None:
        while True:
            with self._lock:
                if self._stopping.is_set() or not self._waiting:
                    self._idle.set()
                    return
                key, partition = next(iter(self._waiting.items()))
            try:
                partition.rebuild(self._writing, self._keep_on)
            except _Stopped:
                continue
            except (RuntimeError, MemoryError) as error:
                logger.warning("a partition of %d vectors keeps its form: %s", len(partition), error)
                self._failed_at[partition] = len(partition)
            with self._lock:
                del self._waiting[key]
            self.consider(partition)

    def _keep_on(self) -> None:
        if self._stopping.is_set():
            raise _Stopped


def _end(stopping: threading.Event, idle: threading.Event) -> None:
    stopping.set()
    idle.wait(END_WITHIN_S)

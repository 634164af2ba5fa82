from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from embeddings.read_write_lock import ReadWriteLock

WAIT_S = 30


def test_readers_share() -> None:
    lock = ReadWriteLock()
    together = threading.Barrier(3)

    def read() -> None:
        with lock.reading():
            together.wait(timeout=WAIT_S)

    with ThreadPoolExecutor(3) as pool:
        for future in [pool.submit(read) for _ in range(3)]:
            future.result(timeout=WAIT_S)


def test_a_writer_is_alone() -> None:
    lock = ReadWriteLock()
    inside = [0, 0]
    worst = [0, 0]

    def use(writes: bool) -> None:
        for _ in range(300):
            with lock.writing() if writes else lock.reading():
                inside[writes] += 1
                if writes:
                    worst[0] = max(worst[0], inside[0])
                    worst[1] = max(worst[1], inside[1])
                inside[writes] -= 1

    with ThreadPoolExecutor(6) as pool:
        for future in [pool.submit(use, n % 2 == 0) for n in range(6)]:
            future.result(timeout=WAIT_S)
    assert worst == [0, 1]


def test_a_waiting_writer_goes_before_new_readers() -> None:
    lock = ReadWriteLock()
    order: list[str] = []
    reading, release = threading.Event(), threading.Event()

    def first_reader() -> None:
        with lock.reading():
            reading.set()
            release.wait(timeout=WAIT_S)

    def write() -> None:
        with lock.writing():
            order.append("writer")

    def late_reader() -> None:
        with lock.reading():
            order.append("late reader")

    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(first_reader)]
        assert reading.wait(timeout=WAIT_S)
        futures.append(pool.submit(write))
        while not lock._writers_waiting:
            time.sleep(0.001)
        futures.append(pool.submit(late_reader))
        release.set()
        for future in futures:
            future.result(timeout=WAIT_S)
    assert order == ["writer", "late reader"]


def test_an_error_inside_releases_it() -> None:
    lock = ReadWriteLock()
    for hold in (lock.reading, lock.writing):
        with pytest.raises(KeyError), hold():
            raise KeyError
    with lock.writing():
        pass
    with lock.reading():
        pass

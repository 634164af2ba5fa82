"""Identifiers."""

from __future__ import annotations

import os

from gateway.ids import random_hex


def test_no_two_are_the_same() -> None:
    made = [random_hex() for _ in range(2000)]
    assert len(set(made)) == 2000
    assert {len(one) for one in made} == {32}
    assert all(int(one, 16) >= 0 for one in made)


def test_a_child_process_makes_its_own() -> None:
    random_hex()
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, random_hex().encode())
        os._exit(0)
    os.wait()
    assert os.read(read, 32).decode() != random_hex()
    os.close(read)
    os.close(write)

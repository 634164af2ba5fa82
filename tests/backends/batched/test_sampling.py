"""The processors, row by row, against what their definitions say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from backends.batched.engines import sampling

torch = pytest.importorskip("torch")


def _apply(processor: Any, rows: list[list[float]], values: list[float | None]) -> list[list[float]]:
    """The rows after `processor`, where each row's request asks for its value, or for nothing."""
    requests = [
        SimpleNamespace(
            state=SimpleNamespace(logit_processor_kwargs={} if v is None else {processor.name: v})
        )
        for v in values
    ]
    out = processor(torch.tensor(rows), processor.prepare_tensor_args(requests))
    result: list[list[float]] = out.tolist()
    return result


def _kept(row: list[float]) -> list[int]:
    return [at for at, score in enumerate(row) if score != float("-inf")]


def test_greedy_keeps_the_first_of_the_best_and_leaves_other_rows_alone() -> None:
    greedy, other = _apply(sampling.Greedy(), [[1.0, 3.0, 3.0], [1.0, 3.0, 3.0]], [1, None])
    assert _kept(greedy) == [1]
    assert other == [1.0, 3.0, 3.0]


def test_temperature_divides() -> None:
    assert _apply(sampling.Temperature(), [[1.0, 2.0], [1.0, 2.0]], [0.5, None]) == [[2.0, 4.0], [1.0, 2.0]]


def test_top_k_keeps_k_per_row() -> None:
    row = [4.0, 1.0, 3.0, 2.0]
    one, three, all_, more = _apply(sampling.TopK(), [row] * 4, [1, 3, None, 99])
    assert (_kept(one), _kept(three), _kept(all_), _kept(more)) == (
        [0],
        [0, 2, 3],
        [0, 1, 2, 3],
        [0, 1, 2, 3],
    )


def test_top_p_keeps_the_smallest_set_that_reaches_it() -> None:
    row = [float(x) for x in torch.tensor([0.1, 0.5, 0.15, 0.25]).log()]
    half, more, all_ = _apply(sampling.TopP(), [row] * 3, [0.4, 0.7, None])
    assert (_kept(half), _kept(more), _kept(all_)) == ([1], [1, 3], [0, 1, 2, 3])


def test_top_p_beyond_the_first_candidates_is_exact() -> None:
    flat = [0.0] * 1000
    (row,) = _apply(sampling.TopP(), [flat], [0.8995])
    assert len(_kept(row)) == 900


def test_min_p_compares_with_the_best() -> None:
    row = [float(x) for x in torch.tensor([0.6, 0.3, 0.08, 0.02]).log()]
    (kept,) = _apply(sampling.MinP(), [row], [0.2])
    assert _kept(kept) == [0, 1]


def test_defaults_are_neutral() -> None:
    storage = torch.full((3,), 7, dtype=torch.int32)
    processor = sampling.TopP()
    processor.fill_defaults(storage)
    assert processor(torch.zeros(3, 5), storage).tolist() == torch.zeros(3, 5).tolist()

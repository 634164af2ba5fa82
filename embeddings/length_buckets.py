"""Which texts run together: padding wasted against calls saved."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from embeddings.protocols import IdArray


def buckets(lengths: IdArray, call_cost: int, max_tokens: int) -> Iterator[npt.NDArray[np.intp]]:
    """Yields the rows of each call: the split with the least padded tokens plus `call_cost` tokens per call.

    `lengths`: tokens of each row. A call has at most `max_tokens`, padding included, or one row.
    """
    if not len(lengths):
        return
    order = np.argsort(lengths, kind="stable")
    distinct, counts = np.unique(lengths, return_counts=True)
    ends = np.concatenate([[0], np.cumsum(counts)])
    start = 0
    for end in _cuts(distinct, ends, call_cost):
        rows = order[ends[start] : ends[end]]
        size = max(1, max_tokens // int(distinct[end - 1]))
        for at in range(0, len(rows), size):
            yield rows[at : at + size]
        start = end


def _cuts(distinct: IdArray, ends: IdArray, call_cost: int) -> list[int]:
    """Ends of the runs of distinct lengths that share a call, by the least cost of every prefix."""
    least = np.zeros(len(distinct) + 1, np.int64)
    begin = np.zeros(len(distinct) + 1, np.int64)
    for end in range(1, len(distinct) + 1):
        costs = least[:end] + call_cost + (ends[end] - ends[:end]) * distinct[end - 1]
        begin[end] = int(np.argmin(costs))
        least[end] = costs[begin[end]]
    cuts = [len(distinct)]
    while begin[cuts[-1]] > 0:
        cuts.append(int(begin[cuts[-1]]))
    return cuts[::-1]

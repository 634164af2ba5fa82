"""Trains the cross-encoder of the verifier from multilingual-e5-small, on pairs that somebody labelled."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import torch

from gateway.training.pair_encoder_model import PairModel, PairTokens, padded
from gateway.verifier_data import Pair

BATCH: Final = 64
_WARM: Final = 0.06  # of the steps
_DECAY: Final = 0.01
_POOL: Final = 24  # batches sorted by length together: less padding, and still by chance
_SMOOTHING: Final = 0.005  # of the labels: some are wrong


def fit(
    model: PairModel,
    tokens: PairTokens,
    pairs: Sequence[Pair],
    *,
    seed: int,
    rate: float,
    epochs: int = 1,
    said: Callable[[str], None] = lambda line: print(line, file=sys.stderr, flush=True),
) -> None:
    """Trains `model` in place. Each pair counts by its weight and is read in either order by chance.
    `rate`: the highest learning rate, of a linear rise and fall."""
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    moved = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.AdamW(moved, lr=rate, weight_decay=_DECAY, fused=True)
    steps = epochs * math.ceil(len(pairs) / BATCH)
    done, total, began = 0, 0.0, time.monotonic()
    model.train()
    for _ in range(epochs):
        for rows in _batches(pairs, tokens, rng):
            for group in optimizer.param_groups:
                group["lr"] = rate * _schedule(done / steps)
            ids, mask = padded([row[0] for row in rows])
            target = torch.tensor([row[1] for row in rows])
            weight = torch.tensor([row[2] for row in rows])
            with torch.autocast("cpu", torch.bfloat16):
                logits = model(ids, mask)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(
                logits.float(), target * (1 - 2 * _SMOOTHING) + _SMOOTHING, weight=weight
            )
            loss.backward()
            torch.nn.utils.clip_grad_norm_(moved, 1.0)
            optimizer.step()
            optimizer.zero_grad()
            done += 1
            total += float(loss)
            if done % 100 == 0:
                said(f"{done}/{steps} loss {total / 100:.4f} {time.monotonic() - began:.0f} s")
                total = 0.0


def scores(model: PairModel, tokens: PairTokens, pairs: Sequence[Pair]) -> npt.NDArray[np.float32]:
    """Logits of (a, b), float32 (N,)."""
    model.eval()
    rows = [tokens.of(pair.a, pair.b) for pair in pairs]
    found = np.empty(len(rows), np.float32)
    order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        for start in range(0, len(order), 128):
            at = order[start : start + 128]
            found[at] = model(*padded([rows[i] for i in at])).float().numpy()
    return found


def save(model: PairModel, path: Path) -> None:
    torch.save(model.state_dict(), path)


def _schedule(part: float) -> float:
    return part / _WARM if part < _WARM else (1 - part) / (1 - _WARM)


def _batches(
    pairs: Sequence[Pair], tokens: PairTokens, rng: np.random.Generator
) -> Iterator[list[tuple[list[int], float, float]]]:
    order = rng.permutation(len(pairs))
    for start in range(0, len(order), BATCH * _POOL):
        pool = []
        for i in order[start : start + BATCH * _POOL].tolist():
            pair = pairs[i]
            a, b = (pair.a, pair.b) if rng.random() < 0.5 else (pair.b, pair.a)
            pool.append((tokens.of(a, b), float(pair.same), pair.weight))
        pool.sort(key=lambda row: len(row[0]))
        batches = [pool[at : at + BATCH] for at in range(0, len(pool), BATCH)]
        for at in rng.permutation(len(batches)).tolist():
            yield batches[at]

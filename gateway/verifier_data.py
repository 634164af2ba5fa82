"""Reads question pairs that a verifier is trained on, and parts them so that no question is on two sides."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from embeddings.protocols import FloatMatrix
from gateway.router_data import SourceFile
from gateway.verifier_edits import CHANGES, Edit, direct, names_in, rename, reword
from gateway.verifier_rewordings import reworded

Part = Literal["train", "blend", "calibrate", "evaluate"]
"""What a pair is for: the cross-encoder and the first trees; the trees that come after the cross-encoder,
which must not see what that learnt by heart; the calibration; the figures."""
_BLOCK = 1024  # rows of similarities held at once


class VerifierDataError(Exception):
    """A file of pairs cannot be used; the message names file, line and field, and what is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two questions and whether one answer serves both. `source` names the data set, or the edit that made
    `b` of `a`. `weight` is what the pair counts for in training and calibration."""

    a: str
    b: str
    same: bool
    source: str
    weight: float = 1.0


def read_pairs(paths: Sequence[Path]) -> tuple[list[Pair], list[SourceFile]]:
    """The pairs of `.jsonl` or `.jsonl.gz` files with an object `{"a", "b", "same"}` on each line; other
    fields are left alone. The source is the file's name. Raises VerifierDataError."""
    pairs: list[Pair] = []
    files: list[SourceFile] = []
    for path in paths:
        source = path.name.removesuffix(".gz").removesuffix(".jsonl")
        for where, row in read_rows(path):
            pairs.append(
                Pair(
                    a=_text(where, row, "a"), b=_text(where, row, "b"), same=_same(where, row), source=source
                )
            )
        files.append(SourceFile(name=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest()))
    return pairs, files


def read_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Where each line is, in words, and its object. Raises VerifierDataError."""
    if not path.is_file():
        raise VerifierDataError(f"{path}: no such file")
    opener = gzip.open if path.name.endswith(".gz") else open
    try:
        with opener(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    where = f"{path} line {number}"
                    yield where, _object(where, line)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise VerifierDataError(f"{path}: cannot be read: {error}") from error


def groups(links: Iterable[tuple[str, str]]) -> dict[str, str]:
    """A group for every text, by a text of it: two texts that are linked, directly or through others, are in
    one group."""
    parent: dict[str, str] = {}

    def root(text: str) -> str:
        parent.setdefault(text, text)
        while parent[text] != text:
            parent[text] = parent[parent[text]]
            text = parent[text]
        return text

    for a, b in links:
        # The lesser text leads, so that the groups' names do not depend on the order of the links.
        low, high = sorted((root(a), root(b)))
        parent[high] = low
    return {text: root(text) for text in list(parent)}


def part_of(
    group: str, seed: int, evaluated: float = 0.2, calibrated: float = 0.2, blended: float = 0.0
) -> Part:
    """The part a group belongs to, by its hash: `evaluated`, `calibrated` and `blended` are shares of all
    groups."""
    digest = hashlib.sha256(f"{seed}:{group}".encode()).digest()
    place = int.from_bytes(digest[:8]) / 2**64
    if place < evaluated:
        return "evaluate"
    if place < evaluated + blended:
        return "blend"
    return "calibrate" if place < evaluated + blended + calibrated else "train"


def nearest_of_other_classes(
    vectors: FloatMatrix, classes: npt.NDArray[np.int64], k: int
) -> npt.NDArray[np.intp]:
    """What a cache meets: for each of N texts the `k` most similar ones that another answer is due to,
    int (N, k), nearest first. `vectors` float32 (N, D), unit norm; `classes` (N,), -1 is a class of its own.
    """
    k = min(k, len(vectors))
    found = np.empty((len(vectors), k), np.intp)
    for start in range(0, len(vectors), _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, len(vectors)))
        similarity = vectors[rows] @ vectors.T
        similarity[(classes[rows, None] == classes) & (classes != -1)] = -np.inf
        similarity[np.arange(len(rows)), rows] = -np.inf
        found[rows] = np.argsort(-similarity, axis=1, kind="stable")[:, :k]
    return found


def edited(texts: Sequence[str], rng: np.random.Generator, each: int, weight: float = 1.0) -> list[Pair]:
    """At most `each` pairs of every kind of change, made of `texts` in an order drawn with `rng`, and beside
    each a harmless edit of the same text: what the text is like must not tell the two apart."""
    order = [texts[int(i)] for i in rng.permutation(len(texts))]
    names = names_in(texts)
    changes: list[Pair] = []
    for kind, change in CHANGES.items():
        made = list(islice(_changed(kind, change, order, names, rng), each))
        changes += [Pair(a=a, b=b, same=False, source=f"edit-{kind}", weight=weight) for a, b in made]
        order = order[each:] + order[:each]  # the kinds begin with different texts
    harmless = [
        Pair(a=pair.a, b=again, same=True, source="edit-harmless", weight=weight)
        for pair in changes
        if (again := reword(pair.a, rng))
    ]
    return changes + harmless


def varied(
    texts: Sequence[str],
    apart: Sequence[tuple[str, str]],
    rng: np.random.Generator,
    count: int,
    weight: float,
) -> list[Pair]:
    """At most `count` of `texts` with the same in other words, a quarter as many with themselves, and half as
    many of the pairs `apart`, which another answer is due to, reworded too: to be worded otherwise must not
    tell either. A reader that has never seen two equal texts takes equality for something to be wary of."""
    same = ((a, reworded(a, rng)) for a in (texts[int(i)] for i in rng.permutation(len(texts))))
    other = ((a, reworded(b, rng)) for a, b in (apart[int(i)] for i in rng.permutation(len(apart))))
    return [
        *(
            Pair(a=a, b=b, same=True, source="edit-reworded", weight=weight)
            for a, b in islice(((a, b) for a, b in same if b), count)
        ),
        *(Pair(a=a, b=a, same=True, source="edit-equal", weight=weight) for a in texts[: count // 4]),
        *(
            Pair(a=a, b=b, same=False, source="edit-reworded-trap", weight=weight)
            for a, b in islice(((a, b) for a, b in other if b), count // 2)
        ),
    ]


def _changed(
    kind: str, change: Edit, texts: Sequence[str], names: Sequence[str], rng: np.random.Generator
) -> Iterator[tuple[str, str]]:
    for text in texts:
        if edit := rename(text, rng, names) if kind == "name" else change(text, rng):
            yield text, edit
    if kind == "direction":
        for text in texts:
            directed = direct(text, rng)
            if edit := change(directed, rng):
                yield directed, edit


def _object(where: str, line: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise VerifierDataError(f"{where}: not JSON: {error}") from error
    if not isinstance(row, Mapping):
        raise VerifierDataError(f'{where}: expected an object with "a", "b" and "same"')
    return row


def _text(where: str, row: Mapping[str, Any], field: str) -> str:
    text = row.get(field)
    if not isinstance(text, str) or not text.strip():
        raise VerifierDataError(f'{where}: "{field}" must be text that is not empty')
    return text


def _same(where: str, row: Mapping[str, Any]) -> bool:
    same = row.get("same")
    if not isinstance(same, bool):
        raise VerifierDataError(f'{where}: "same" must be true or false, not {same!r}')
    return same

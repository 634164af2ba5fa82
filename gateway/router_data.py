"""Reads what a router is trained on: prompts with how well a small and a large model answered each."""

from __future__ import annotations

import ast
import csv
import gzip
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

DEFAULT_SMALL = ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mistral-7b-instruct-v0.3")
DEFAULT_LARGE = ("gpt-4-1106-preview", "llama-3.1-nemotron-51b-instruct")


class TrainingDataError(Exception):
    """A training file cannot be used; the message names the file, the row and what is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """`name` has no folder of the machine it was read on. `sha256` is that of the file's bytes, hex."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledPrompts:
    """N prompts, no two alike. `small` and `large`, float64 (N,): quality of each model's answer in [0, 1],
    right = 1. `sources`: the name of the data set of each row."""

    prompts: tuple[str, ...]
    small: npt.NDArray[np.float64]
    large: npt.NDArray[np.float64]
    sources: tuple[str, ...]
    files: tuple[SourceFile, ...] = ()

    def __len__(self) -> int:
        return len(self.prompts)

    def take(self, rows: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> LabelledPrompts:
        """The rows of these indices, or where the mask is true."""
        index = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return LabelledPrompts(
            prompts=tuple(self.prompts[i] for i in index),
            small=self.small[index],
            large=self.large[index],
            sources=tuple(self.sources[i] for i in index),
            files=self.files,
        )

    def of(self, source: str) -> LabelledPrompts:
        """The rows of one data set."""
        return self.take(np.array([name == source for name in self.sources], dtype=np.bool_))


@dataclass(frozen=True, slots=True)
class _Row:
    prompt: str
    small: float
    large: float
    source: str


def read_training_data(
    paths: Sequence[Path],
    small_models: Sequence[str] = DEFAULT_SMALL,
    large_models: Sequence[str] = DEFAULT_LARGE,
) -> LabelledPrompts:
    """Reads files and folders, in this order, and keeps the first of every prompt.

    A `.csv` has a column `prompt` and one column of right or wrong per model (RouteLLM). A `.json` is a list
    of `{question, scores: {model: quality}}` (LLMRouter). A `.jsonl` or `.jsonl.gz` has a
    `{prompt, small, large}` per line. Of a folder: every `.csv` in it and below; prompts of a
    `*_contaminated_prompts.jsonl` in it are left out. `small_models` and `large_models` name the columns:
    the first that a file has. Raises TrainingDataError.
    """
    rows: dict[str, _Row] = {}
    files: list[SourceFile] = []
    for path in paths:
        contaminated: set[str] = set()
        if path.is_dir():
            tables = sorted(path.rglob("*.csv"))
            if not tables:
                raise TrainingDataError(f"{path}: no .csv file in this folder")
            contaminated = contaminated_prompts(path)
        elif path.is_file():
            tables = [path]
        else:
            raise TrainingDataError(f"{path}: no such file or folder")
        for table in tables:
            for row in _read_file(table, small_models, large_models):
                if row.prompt not in contaminated:
                    rows.setdefault(row.prompt, row)
            name = str(table.relative_to(path.parent)) if path.is_dir() else table.name
            files.append(SourceFile(name=name, sha256=hashlib.sha256(table.read_bytes()).hexdigest()))
    if not rows:
        raise TrainingDataError(f"{', '.join(map(str, paths))}: no prompt to train on")
    kept = list(rows.values())
    return LabelledPrompts(
        prompts=tuple(row.prompt for row in kept),
        small=np.array([row.small for row in kept]),
        large=np.array([row.large for row in kept]),
        sources=tuple(row.source for row in kept),
        files=tuple(files),
    )


def contaminated_prompts(folder: Path) -> set[str]:
    """The evaluation prompts that RouteLLM leaves out of its figures, being in its routers' training data."""
    prompts = set()
    for path in sorted(folder.glob("*_contaminated_prompts.jsonl")):
        for where, value in _json_lines(path):
            if not isinstance(value, Mapping) or not isinstance(value.get("eval_prompt"), str):
                raise TrainingDataError(f'{where}: expected an object with a string "eval_prompt"')
            prompts.add(value["eval_prompt"])
    return prompts


def read_texts(path: Path) -> tuple[list[str], SourceFile]:
    """The `text` of every line of a `.jsonl` or `.jsonl.gz`. Raises TrainingDataError."""
    if not path.is_file():
        raise TrainingDataError(f"{path}: no such file")
    texts = []
    for where, value in _json_lines(path):
        if not isinstance(value, Mapping) or not isinstance(value.get("text"), str):
            raise TrainingDataError(f'{where}: expected an object with a string "text"')
        texts.append(value["text"])
    return texts, SourceFile(name=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def _read_file(path: Path, small: Sequence[str], large: Sequence[str]) -> Iterable[_Row]:
    readers: dict[str, Callable[[Path, Sequence[str], Sequence[str]], Iterable[_Row]]] = {
        ".csv": _read_csv,
        ".json": _read_scores,
        ".jsonl": _read_lines,
        ".jsonl.gz": _read_lines,
    }
    for ending, reader in readers.items():
        if path.name.endswith(ending):
            try:
                return list(reader(path, small, large))
            except (OSError, UnicodeDecodeError, csv.Error) as error:
                raise TrainingDataError(f"{path}: cannot be read: {error}") from error
    raise TrainingDataError(f"{path}: expected a folder, .csv, .json, .jsonl or .jsonl.gz")


def _read_csv(path: Path, small: Sequence[str], large: Sequence[str]) -> Iterable[_Row]:
    source = "mmlu" if path.name.startswith("mmlu_") else path.stem.removesuffix("_responses")
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        columns = reader.fieldnames or ()
        if "prompt" not in columns:
            raise TrainingDataError(f'{path}: no column "prompt"; columns: {", ".join(columns) or "none"}')
        weak = _pick(f"{path}", small, columns, "--small-model")
        strong = _pick(f"{path}", large, columns, "--large-model")
        for number, row in enumerate(reader, 2):
            where = f"{path} row {number}"
            yield _Row(
                _prompt(where, row["prompt"]),
                _quality(where, weak, row[weak]),
                _quality(where, strong, row[strong]),
                source,
            )


def _read_scores(path: Path, small: Sequence[str], large: Sequence[str]) -> Iterable[_Row]:
    try:
        items = json.loads(path.read_bytes())
    except ValueError as error:
        raise TrainingDataError(f"{path}: not JSON: {error}") from error
    if not isinstance(items, list):
        raise TrainingDataError(f"{path}: expected a list of {{question, scores}}")
    for number, item in enumerate(items):
        where = f"{path} item {number}"
        if not isinstance(item, Mapping):
            raise TrainingDataError(f"{where}: expected an object with question and scores")
        scores = item.get("scores")
        if isinstance(scores, str):  # LLMRouter writes Python literals
            try:
                scores = ast.literal_eval(scores)
            except (ValueError, SyntaxError) as error:
                raise TrainingDataError(f"{where}: scores is no mapping of model to quality") from error
        if not isinstance(scores, Mapping):
            raise TrainingDataError(f"{where}: scores is no mapping of model to quality")
        weak = _pick(where, small, list(scores), "--small-model")
        strong = _pick(where, large, list(scores), "--large-model")
        yield _Row(
            _prompt(where, item.get("question")),
            _quality(where, weak, scores[weak]),
            _quality(where, strong, scores[strong]),
            path.stem.removesuffix("_train").removesuffix("_test"),
        )


def _read_lines(path: Path, small: Sequence[str], large: Sequence[str]) -> Iterable[_Row]:
    source = path.name.removesuffix(".gz").removesuffix(".jsonl")
    for where, value in _json_lines(path):
        if not isinstance(value, Mapping):
            raise TrainingDataError(f"{where}: expected an object with prompt, small and large")
        yield _Row(
            _prompt(where, value.get("prompt")),
            _quality(where, "small", value.get("small")),
            _quality(where, "large", value.get("large")),
            source,
        )


def _json_lines(path: Path) -> Iterable[tuple[str, Any]]:
    opener = gzip.open if path.name.endswith(".gz") else open
    with opener(path, "rt", encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield f"{path} line {number}", json.loads(line)
                except ValueError as error:
                    raise TrainingDataError(f"{path} line {number}: not JSON: {error}") from error


def _pick(where: str, wanted: Sequence[str], present: Sequence[str], option: str) -> str:
    for name in wanted:
        if name in present:
            return name
    raise TrainingDataError(
        f"{where}: none of the models {', '.join(wanted)}; name one of: {', '.join(present)} ({option})"
    )


def _prompt(where: str, value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TrainingDataError(f"{where}: the prompt must be text that is not empty")
    return value


def _quality(where: str, name: str, value: object) -> float:
    words = {"true": 1.0, "false": 0.0}
    try:
        number = words[value.lower()] if isinstance(value, str) and value.lower() in words else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not 0 <= number <= 1:
        raise TrainingDataError(
            f"{where}: {name} must be a quality from 0 to 1, or true or false, not {value!r}"
        )
    return number

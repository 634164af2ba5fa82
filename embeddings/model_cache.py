"""Models converted at first use, kept in the user's cache folder.

A folder appears under its name only when it is complete: it is built beside its place and renamed into it.
One process builds at a time; the others wait and find it. What a killed process left is removed by the next
build. Beside its files lie their hashes, looked at each time: a folder that is not what was built, by a bad
disk or a hand in it, is built again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

CHECKSUMS = "checksums.json"


class ModelCacheError(Exception):
    """The cache folder cannot be used; the message says what to do."""


def root() -> Path:
    """`$LOCKGATE_CACHE_DIR/models`, or `models` in the platform's cache folder for lockgate."""
    chosen = os.environ.get("LOCKGATE_CACHE_DIR")
    return Path(chosen or platformdirs.user_cache_dir("lockgate")).expanduser() / "models"


def fingerprint(*files: Path) -> str:
    """12 hex digits that stand for the content of the files, in order."""
    total = hashlib.blake2b(digest_size=6)
    for path in files:
        with path.open("rb") as file:
            total.update(hashlib.file_digest(file, "blake2b").digest())
    return total.hexdigest()


def ensure(name: str, build: Callable[[Path], None]) -> Path:
    """The folder called `name`; when it is missing, `build` fills an empty one that then takes the name.

    `name` must change with whatever changes the content. What `build` raises is passed on and leaves nothing
    behind. Raises ModelCacheError when the folder cannot be written.
    """
    folder = root() / name
    if _intact(folder):
        return folder
    with _writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder.parent / f".{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        with _writing(folder):
            fcntl.flock(lock, fcntl.LOCK_EX)
        if not _intact(folder):
            _build(folder, build)
    finally:
        os.close(lock)
    return folder


def _build(folder: Path, build: Callable[[Path], None]) -> None:
    prefix = f".{folder.name}.partial-"
    with _writing(folder):
        for stale in folder.parent.glob(prefix + "*"):
            shutil.rmtree(stale, ignore_errors=True)
        partial = Path(tempfile.mkdtemp(prefix=prefix, dir=folder.parent))
    try:
        build(partial)
        with _writing(folder):
            (partial / CHECKSUMS).write_text(json.dumps(_hashes(partial)), "utf-8")
            partial.chmod(0o755)  # a cache filled by one user, as in an image, serves others
            for path in partial.rglob("*"):
                path.chmod(path.stat().st_mode | (0o555 if path.is_dir() else 0o444))
            if folder.is_dir():  # damaged; who has it open keeps what is open
                folder.replace(partial.with_name(f"{prefix}damaged-{partial.name[-8:]}"))
            partial.replace(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _intact(folder: Path) -> bool:
    """Whether it is there, and as it was built."""
    try:
        told = json.loads((folder / CHECKSUMS).read_text("utf-8"))
        return bool(told == _hashes(folder))
    except (OSError, ValueError):
        return False


def _hashes(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): fingerprint(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != CHECKSUMS
    }


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ModelCacheError(
            f"cannot write the model cache {folder.parent} ({error.strerror}): "
            "set LOCKGATE_CACHE_DIR to a folder that can be written"
        ) from error

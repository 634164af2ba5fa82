"""What every embedder must do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from embeddings.onnx_embedder import OnnxEmbedder
from embeddings.protocols import Embedder, EmbedderError, Encoding
from embeddings.sentence_transformers_embedder import SentenceTransformersEmbedder
from tests.tiny_bert import write_bert

TEXTS = [
    "How do I reset my password?",
    "a",
    "",
    "비밀번호를 어떻게 바꾸나요?",
    "😀 party 🎉",
    "The quick brown fox jumps over the lazy dog and then goes home to sleep. " * 4,
    "def f(x):\n    return x + 1",
    "What is the capital of France?",
]
OPENERS: dict[str, Callable[[Path], Embedder]] = {
    "onnx default": lambda folder: OnnxEmbedder.open("default", "cpu", 1),
    "onnx minilm": lambda folder: OnnxEmbedder.open("minilm", "cpu", 1),
    "onnx folder": lambda folder: OnnxEmbedder.open(str(folder), "cpu", 1),
    "sentence-transformers": lambda folder: SentenceTransformersEmbedder.open("minilm", "cpu"),
}
pytestmark = pytest.mark.model


@pytest.fixture(scope="module", params=list(OPENERS))
def embedder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedder]:
    folder = tmp_path_factory.mktemp("tiny")
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "onnx folder":
            write_bert(folder)
            patch.setenv("LOCKGATE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        opened = OPENERS[request.param](folder)
    yield opened
    opened.close()


def check(encoding: Encoding, rows: int, embedder: Embedder) -> None:
    assert encoding.vectors.shape == (rows, embedder.dimension)
    assert encoding.vectors.dtype == np.float32
    assert encoding.token_counts.shape == (rows,)
    assert encoding.token_counts.dtype == np.int64
    assert encoding.truncated.shape == (rows,)
    assert encoding.truncated.dtype == np.bool_
    assert np.abs(np.linalg.norm(encoding.vectors, axis=1) - 1).max(initial=0) < 1e-5


def test_gives_a_unit_vector_per_text(embedder: Embedder) -> None:
    encoding = embedder.encode(TEXTS)
    check(encoding, len(TEXTS), embedder)
    assert encoding.token_counts.min() >= 2
    assert embedder.space


def test_no_texts_give_no_rows(embedder: Embedder) -> None:
    check(embedder.encode([]), 0, embedder)


def test_a_text_alone_and_in_company_is_the_same(embedder: Embedder) -> None:
    together = embedder.encode(TEXTS)
    backwards = embedder.encode(TEXTS[::-1])
    for i, text in enumerate(TEXTS):
        alone = embedder.encode([text])
        assert alone.vectors[0] @ together.vectors[i] > 0.9999
        assert alone.vectors[0] @ backwards.vectors[-1 - i] > 0.9999
        assert alone.token_counts[0] == together.token_counts[i] == backwards.token_counts[-1 - i]


def test_the_same_call_gives_the_same_bits(embedder: Embedder) -> None:
    assert np.array_equal(embedder.encode(TEXTS).vectors, embedder.encode(TEXTS).vectors)


def test_different_texts_have_different_vectors(embedder: Embedder) -> None:
    vectors = embedder.encode(["the cat sat on the mat", "a dog ran under the tree"]).vectors
    assert vectors[0] @ vectors[1] < 0.99


def words_for(embedder: Embedder, tokens: int) -> str:
    """A text of exactly so many tokens."""
    few, more = (embedder.encode([" ".join(["cat"] * n)]).token_counts[0] for n in (2, 3))
    assert more == few + 1
    return " ".join(["cat"] * (tokens - int(few) + 2))


def test_truncation_is_told_exactly_at_the_window(embedder: Embedder) -> None:
    window = embedder.max_tokens
    fits = words_for(embedder, window)
    encoding = embedder.encode([fits, fits + " dog", fits + " tree sat", "cat"])
    assert encoding.token_counts.tolist()[:3] == [window, window + 1, window + 2]
    assert encoding.truncated.tolist() == [False, True, True, False]
    assert encoding.vectors[1] @ encoding.vectors[2] > 0.9999  # what is cut off is not seen
    before = words_for(embedder, window - 1)
    dog, tree = embedder.encode([before + " dog", before + " tree"]).vectors
    assert dog @ tree < 0.99999  # what is not cut off is


@pytest.mark.parametrize(
    "text", ["cat " * 25_000, "가" * 100_000, "x" * 100_000], ids=["words", "hangul", "one"]
)
def test_a_very_long_text_is_encoded(embedder: Embedder, text: str) -> None:
    encoding = embedder.encode([text, "cat"])
    check(encoding, 2, embedder)
    if text.startswith("cat"):
        assert encoding.token_counts[0] > 25_000
        assert encoding.truncated.tolist() == [True, False]


@pytest.mark.parametrize("text", ["\ud800 half a pair", "\x00", "\n\n\t", "[SEP] </s> <pad>", "\u202e\u200b"])
def test_odd_text_is_encoded(embedder: Embedder, text: str) -> None:
    check(embedder.encode([text]), 1, embedder)


@pytest.mark.parametrize("name", list(OPENERS))
def test_a_closed_embedder_says_so(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "onnx folder":
        write_bert(tmp_path)
        monkeypatch.setenv("LOCKGATE_CACHE_DIR", str(tmp_path / "cache"))
    embedder = OPENERS[name](tmp_path)
    embedder.close()
    embedder.close()
    with pytest.raises(EmbedderError, match="closed"):
        embedder.encode(["cat"])

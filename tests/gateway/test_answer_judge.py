"""Answers compared: by words, by vectors, and by a model where neither tells."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from embeddings.protocols import EncodedText
from gateway.answer_judge import MEASURED_FOR, AnswerJudge
from tests.gateways import SETTINGS, running

SPACE = f"{MEASURED_FOR}-int8/onnxruntime-cpu"
LONG = "The refund is paid back to the card that you used within five working days after we have the parcel."
OTHER = (
    "Within five working days after your parcel has reached us you see the money on the card you paid with."
)


def answer(text: str) -> dict[str, Any]:
    return {"id": "x", "choices": [{"message": {"role": "assistant", "content": text}}]}


class FakeModel:
    """Says what it is told to, and keeps what it was asked."""

    def __init__(self, said: str) -> None:
        self.said = said
        self.asked: list[Mapping[str, Any]] = []

    async def __call__(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked.append(body)
        return answer(self.said)


async def embed(text: str) -> EncodedText:
    """Every text the same but those of one word."""
    vector = np.array([1.0, 0.0] if " " in text else [0.0, 1.0], np.float32)
    return EncodedText(vector=vector, token_count=len(text), truncated=len(text) > 500)


async def test_equal_words_need_neither_vectors_nor_a_model() -> None:
    model = FakeModel("DIFFERENT")
    assert await AnswerJudge(None, None, model).agree("?", answer("Paris."), answer("paris")) is True
    assert await AnswerJudge(None, None, model).agree("?", answer("Paris."), answer("Lyon")) is False
    assert not model.asked


async def test_near_vectors_settle_long_answers() -> None:
    assert await AnswerJudge(embed, SPACE).agree("?", answer(LONG), answer(OTHER)) is True
    assert await AnswerJudge(None, None).agree("?", answer(LONG), answer(OTHER)) is None


async def test_vectors_of_an_embedder_whose_scale_nobody_measured_are_not_compared() -> None:
    assert await AnswerJudge(embed, "all-MiniLM-L6-v2-int8").agree("?", answer(LONG), answer(OTHER)) is None


@pytest.mark.parametrize(
    ("said", "same"),
    [
        ("SAME", True),
        ("different.", False),
        ("They look the same at first, but: DIFFERENT", False),
        ("I cannot say", None),
    ],
)
async def test_what_is_left_open_a_model_is_asked(said: str, same: bool | None) -> None:
    model = FakeModel(said)
    judge = AnswerJudge(embed, SPACE, model)
    assert await judge.agree("When?", answer(LONG), answer(LONG.replace("five", "3"))) is same
    prompt = model.asked[0]["messages"][0]["content"]
    assert "When?" in prompt
    assert LONG in prompt


async def test_an_answer_beyond_the_window_is_not_judged_by_its_beginning() -> None:
    long = LONG * 9
    assert await AnswerJudge(embed, SPACE).agree("?", answer(long), answer(long + OTHER)) is None


async def test_the_model_of_the_configuration_is_asked_through_its_backend() -> None:
    policy = {**SETTINGS["cache"]["policy"], "judge": "large"}
    async with running(cache={**SETTINGS["cache"], "policy": policy}) as test:
        from gateway.answer_judge import asked_of

        test.backend.rewrite = lambda body: json.loads(json.dumps(body).replace("answer 1", "SAME"))
        ask = asked_of(test.gateway.catalog, test.gateway.pipeline.generation, "large")
        judge = AnswerJudge(None, None, ask)
        assert await judge.agree("When?", answer(LONG), answer(OTHER)) is True
        assert test.backend.calls[0].body["model"] == "fake-large"

"""Completions: what is accepted, and one answer as a stream."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types import Completion

from gateway.errors import RequestError
from gateway.wire.completions import CompletionsDialect
from gateway.wire.dialect import Dialect
from policies.requirements import estimated_tokens, needed_capabilities
from policies.semantic_safety import why_unsafe
from policies.types import Usage

DIALECT: Dialect = CompletionsDialect()
HEAD = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "m", "vendor": {"a": 1}}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "auto", "prompt": "Once", **fields}


def choice(text: str, index: int = 0, finish_reason: str | None = "stop", **more: Any) -> dict[str, Any]:
    return {"index": index, "text": text, "logprobs": None, "finish_reason": finish_reason, **more}


def answer(*choices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {**HEAD, "choices": list(choices), **more}


def assembled(events: list[dict[str, Any]]) -> dict[str, Any]:
    assembler = DIALECT.assembler()
    for event in events:
        assembler.add(event)
    return assembler.answer()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"prompt": ["a", "b"]},
        {"prompt": [1, 2]},
        {"prompt": [[1, 2], [3]]},
        {"prompt": None},
        {"suffix": "end", "echo": True, "n": 2, "best_of": 3, "logprobs": 5},
        {"max_tokens": 0, "stop": ["a"], "seed": 1, "logit_bias": {"50256": -100}, "later": [1]},
    ],
)
def test_requests_of_every_form(fields: dict[str, Any]) -> None:
    assert DIALECT.check(body(**fields)).model == "auto"


def test_usage_in_a_stream_is_asked_for() -> None:
    assert DIALECT.check(body(stream=True, stream_options={"include_usage": True})).include_usage
    assert not DIALECT.check(body(stream=True)).include_usage


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"prompt": 3}, "prompt", "expected `str | array"),
        ({"prompt": []}, "prompt", "length >= 1"),
        ({"prompt": ["a", 1]}, "prompt[1]", "all texts"),
        ({"prompt": [1.5]}, "prompt[0]", "expected"),
        ({"n": 0}, "n", ">= 1"),
        ({"n": 3, "best_of": 2}, "best_of", "at least n (3)"),
        ({"logprobs": True}, "logprobs", "expected `int"),
        ({"temperature": -1}, "temperature", ">= 0"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage", "expected `bool"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        DIALECT.check(body(**fields))
    assert caught.value.param == param
    assert message in str(caught.value)


def test_a_missing_prompt_is_named() -> None:
    with pytest.raises(RequestError, match="prompt: the field is missing"):
        DIALECT.check({"model": "auto"})


@pytest.mark.parametrize("prompt", ["Once", ["Once"]])
def test_one_text_is_the_users_message(prompt: Any) -> None:
    view = DIALECT.chat_view(body(prompt=prompt, max_tokens=5))
    assert view["messages"] == [{"role": "user", "content": "Once"}]
    assert view["max_tokens"] == 5
    assert why_unsafe(view) == ("", "Once")


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": ["a", "b"]},
        {"prompt": [1, 2]},
        {"prompt": [[1, 2]]},
        {"prompt": None},
        {"prompt": ""},
        {"echo": True},
        {"n": 2},
        {"logprobs": 0},
    ],
)
def test_other_requests_are_not_answered_by_similarity(fields: dict[str, Any]) -> None:
    assert why_unsafe(DIALECT.chat_view(body(**fields)))[1] is None


def test_the_view_has_nothing_that_was_not_checked() -> None:
    odd = body(response_format=3, tools=3, messages=3)
    assert needed_capabilities(DIALECT.chat_view(odd)) == set()
    assert needed_capabilities(DIALECT.chat_view(body(response_format={"type": "json_object"}))) == {"json"}


def test_the_size_of_every_prompt_shows() -> None:
    for prompt in ("word " * 300, ["word " * 150] * 2, [46403] * 300, [[46403] * 150] * 2):
        assert estimated_tokens(DIALECT.chat_view(body(prompt=prompt, max_tokens=1))) > 300


def test_the_question_is_the_prompt() -> None:
    assert DIALECT.without_question(body(suffix="end")) == {"model": "auto", "suffix": "end"}


logprobs = st.lists(st.floats(-9, 0), max_size=3).map(
    lambda values: {"tokens": ["t"] * len(values), "token_logprobs": values, "text_offset": [0] * len(values)}
)


@given(st.lists(st.tuples(st.text(), st.none() | logprobs), min_size=1, max_size=3))
@settings(deadline=None)
def test_an_answer_survives_both_ways(said: list[tuple[str, Any]]) -> None:
    choices = [choice(text, i, logprobs=value) for i, (text, value) in enumerate(said)]
    whole = answer(*choices, usage=USAGE)
    events = list(DIALECT.events(whole, include_usage=True))
    assert assembled(events) == whole
    assert assembled([whole]) == whole
    Completion.model_validate(whole)


def test_a_text_comes_in_pieces_of_a_few_words() -> None:
    events = list(DIALECT.events(answer(choice("word " * 40)), include_usage=False))
    assert len(events) >= 6
    assert all(event["object"] == "text_completion" for event in events)
    assert [event["choices"][0]["finish_reason"] for event in events[-2:]] == [None, "stop"]


def test_usage_is_streamed_only_where_it_was_asked_for() -> None:
    whole = answer(choice("a"), usage=USAGE)
    assert list(DIALECT.events(whole, include_usage=True))[-1] == {**HEAD, "choices": [], "usage": USAGE}
    assert not any("usage" in event for event in DIALECT.events(whole, include_usage=False))


def test_log_probabilities_of_pieces_are_joined() -> None:
    events = [
        answer(choice(token, finish_reason=None, logprobs={"tokens": [token], "token_logprobs": [-1.0]}))
        for token in "ab"
    ]
    whole = assembled([*events, answer(choice(""), usage=USAGE)])
    assert whole["choices"] == [choice("ab", logprobs={"tokens": ["a", "b"], "token_logprobs": [-1.0, -1.0]})]
    assert whole["usage"] == USAGE


def test_choices_without_an_index_and_empty_heads() -> None:
    chunks: list[dict[str, Any]] = [
        {**HEAD, "obfuscation": "xK2", "choices": [{"text": "a"}, {"text": "b"}]},
        {
            "id": "",
            "choices": [{"text": "", "finish_reason": "stop"}, {"text": "c", "finish_reason": "stop"}],
        },
    ]
    assert assembled(chunks) == answer(choice("a"), choice("bc", 1))
    whole = answer({"text": "a"}, {"text": "b"})
    assert [
        one["text"] for one in assembled(list(DIALECT.events(whole, include_usage=False)))["choices"]
    ] == [
        "a",
        "b",
    ]


def test_usage_is_read() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 2}}
    assert DIALECT.usage(answer(usage={**USAGE, **details})) == Usage(
        prompt_tokens=3, completion_tokens=2, cached_tokens=2
    )
    assert DIALECT.usage(answer(usage=None)) is None


@pytest.mark.parametrize(
    ("whole", "why"),
    [
        (answer(choice("a")), ""),
        (answer(), "no choices"),
        (answer(choice(" ")), "empty"),
        (answer(choice("a"), choice("b", 1, "length")), "length"),
        (answer(choice("a", finish_reason=None)), "no finish reason"),
        (answer(choice("a", finish_reason="content_filter")), "content_filter"),
    ],
)
def test_only_whole_answers_are_kept(whole: dict[str, Any], why: str) -> None:
    reason = DIALECT.why_not_stored(whole)
    assert why in reason
    assert bool(why) == bool(reason)


def test_a_stored_answer_is_served_as_a_fresh_one() -> None:
    fresh = DIALECT.renewed(answer(choice("a")), model="auto", now=9.5)
    assert fresh["id"].startswith("cmpl-")
    assert fresh["id"] != "cmpl-1"
    assert (fresh["created"], fresh["model"], fresh["vendor"]) == (9, "auto", {"a": 1})


def test_frames_and_errors_are_data() -> None:
    assert DIALECT.frame({"a": 1}) == b'data: {"a":1}\n\n'
    assert DIALECT.end == b"data: [DONE]\n\n"
    assert DIALECT.error_frame(RequestError("Cut.")).startswith(b'data: {"error":{"message":"Cut."')
    assert DIALECT.error_body(RequestError("Cut.")).startswith(b'{"error":{"message":"Cut."')

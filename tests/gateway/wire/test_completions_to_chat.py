"""Completions for a chat backend: one prompt is a message, what cannot be said is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types import Completion

from gateway.errors import RequestError
from gateway.wire import chat
from gateway.wire.completions import CompletionsDialect
from gateway.wire.completions_to_chat import CompletionsToChat
from gateway.wire.dialect import Translator
from tests.chat_streams import HEAD, USAGE, chunk, completion, streams

TRANSLATOR: Translator = CompletionsToChat()
ASKED = {"model": "auto", "prompt": "Once"}


def translated(**fields: Any) -> dict[str, Any]:
    request = TRANSLATOR.request({**ASKED, **fields})
    chat.check(request)
    return request


@pytest.mark.parametrize("prompt", ["Once", ["Once"]])
def test_one_prompt_is_the_users_message(prompt: Any) -> None:
    assert translated(prompt=prompt, max_tokens=5) == {
        "model": "auto",
        "messages": [{"role": "user", "content": "Once"}],
        "max_tokens": 5,
    }


def test_the_default_length_is_that_of_completions() -> None:
    assert translated()["max_tokens"] == translated(max_tokens=None)["max_tokens"] == 16


def test_parameters_go_on() -> None:
    given = {"temperature": 0.5, "stop": ["a"], "n": 2, "seed": 1, "user": "u", "top_k": 3, "max_tokens": 9}
    assert translated(**given, best_of=1, echo=False, suffix=None) == {
        "model": "auto",
        "messages": [{"role": "user", "content": "Once"}],
        **given,
    }


def test_a_stream_is_asked_for_with_its_usage() -> None:
    request = translated(stream=True, stream_options={"include_usage": False})
    assert (request["stream"], request["stream_options"]) == (True, {"include_usage": True})


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ["a", "b"]}, "prompt"),
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": [[1]]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"tools": 3}, "tools"),
        ({"suffix": "end"}, "suffix"),
        ({"echo": True}, "echo"),
        ({"best_of": 2}, "best_of"),
        ({"logprobs": 0}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_what_cannot_be_said_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        TRANSLATOR.request({**ASKED, **fields})
    assert (caught.value.status, caught.value.param) == (400, param)


def test_an_answer_comes_back_as_a_completion() -> None:
    whole = TRANSLATOR.answer(completion({"content": "upon a time"}, "length"), ASKED)
    assert whole == {
        **HEAD,
        "id": "cmpl-1a",
        "object": "text_completion",
        "choices": [{"index": 0, "text": "upon a time", "logprobs": None, "finish_reason": "length"}],
        "usage": USAGE,
    }
    Completion.model_validate(whole)


@given(
    st.dictionaries(st.sampled_from(["content", "reasoning_content"]), st.text(min_size=1)),
    st.sampled_from(["stop", "length"]),
    st.data(),
)
@settings(deadline=None)
def test_a_stream_says_what_the_whole_answer_says(
    message: dict[str, Any], finish_reason: str, data: st.DataObject
) -> None:
    whole = completion(message, finish_reason)
    events = TRANSLATOR.events(ASKED)
    assembler = CompletionsDialect().assembler()
    for one in data.draw(streams(whole)):
        for event in events.feed(one):
            assembler.add(event)
    assert list(events.end()) == []
    assert assembler.answer() == TRANSLATOR.answer(whole, ASKED)


def test_chunks_without_text_are_left_out() -> None:
    events = TRANSLATOR.events(ASKED)
    empty = chunk({"role": "assistant", "content": ""})
    assert list(events.feed(empty)) == []
    assert list(events.feed(chunk({"content": ""}, ""))) == []
    assert list(events.feed(chunk({"reasoning_content": "Hm"}))) == []
    assert [event["choices"][0]["text"] for event in events.feed(chunk({"content": "a"}))] == ["a"]


def test_the_usage_of_an_empty_chunk_is_kept() -> None:
    last = {**HEAD, "object": "chat.completion.chunk", "choices": [], "usage": USAGE}
    assert [event["usage"] for event in TRANSLATOR.events(ASKED).feed(last)] == [USAGE]


def test_several_choices_keep_their_places() -> None:
    two = completion({"content": "a"})
    two["choices"].append({"index": 1, "message": {"content": "b"}, "finish_reason": "stop"})
    assert [(c["index"], c["text"]) for c in TRANSLATOR.answer(two, ASKED)["choices"]] == [(0, "a"), (1, "b")]

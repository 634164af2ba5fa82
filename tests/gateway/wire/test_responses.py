"""The Responses API: what is accepted, who may share an answer, what may be kept."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from openai.types.responses import ResponseErrorEvent

from gateway.errors import RequestError
from gateway.wire.dialect import Dialect
from gateway.wire.responses import ResponsesDialect
from policies.requirements import needed_capabilities
from policies.semantic_safety import why_unsafe
from policies.types import Usage

DIALECT: Dialect = ResponsesDialect()
USER = {"role": "user", "content": "hello"}
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "3"}


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "auto", "input": "hello", **fields}


def answer(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": "completed", "output": list(output), **fields}


def said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


@pytest.mark.parametrize(
    "fields",
    [
        {"input": [USER]},
        {
            "input": [
                {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "a"}]}
            ]
        },
        {"input": [USER, CALL, OUTPUT]},
        {"input": [{**OUTPUT, "output": [{"type": "input_text", "text": "3"}]}]},
        {"input": [{"type": "reasoning", "id": "rs", "summary": []}, {"type": "hologram", "content": None}]},
        {"input": [{"type": "item_reference", "id": "msg_1"}, {"id": "msg_2"}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]},
        {"input": None, "prompt": {"id": "pmpt_1"}},
        {"conversation": {"id": "conv_1"}},
        {"tools": [{"type": "web_search"}, {"type": "function", "name": "f", "parameters": {}}]},
        {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}, "verbosity": "low"}},
        {"reasoning": {"effort": "high", "summary": "auto"}, "temperature": None, "later": [1]},
    ],
)
def test_requests_of_every_form(fields: dict[str, Any]) -> None:
    assert DIALECT.check(body(**fields)).model == "auto"


def test_what_every_api_says_is_read() -> None:
    asked = DIALECT.check(body(stream=True))
    assert (asked.stream, asked.include_usage) == (True, True)
    assert not DIALECT.check(body()).stream


@pytest.mark.parametrize(
    ("fields", "param", "message"),
    [
        ({"model": ""}, "model", "length >= 1"),
        ({"input": None}, "input", "missing"),
        ({"input": 3}, "input", "expected `str | array"),
        ({"input": [3]}, "input[0]", "expected `object`"),
        ({"input": [{"type": 3}]}, "input[0].type", "expected text"),
        (
            {"input": [USER, {"role": "robot", "content": "a"}]},
            "input[1].role",
            "expected one of user, assistant, system, developer, got 'robot'",
        ),
        ({"input": [{"type": "message", "content": "a"}]}, "input[0].role", "missing"),
        ({"input": [{"role": "user"}]}, "input[0].content", "missing"),
        ({"input": [{"role": "user", "content": [{}]}]}, "input[0].content[0].type", "missing"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
            "input[0].content[0].text",
            "missing",
        ),
        ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id", "missing"),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].output", "missing"),
        ({"input": [{**CALL, "arguments": {}}]}, "input[0].arguments", "expected `str`"),
        ({"input": [{**OUTPUT, "output": [3]}]}, "input[0].output[0]", "expected `object`"),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": [3]}},
            "tool_choice.tools[0]",
            "expected `object`",
        ),
        ({"temperature": 3}, "temperature", "<= 2"),
        ({"max_output_tokens": 0}, "max_output_tokens", ">= 1"),
        ({"top_logprobs": 21}, "top_logprobs", "<= 20"),
        ({"truncation": "middle"}, "truncation", "auto, disabled"),
        ({"stream": "yes"}, "stream", "expected `bool | null`"),
        ({"tools": [{"type": "function"}]}, "tools[0].name", "missing"),
        ({"tools": [{}]}, "tools[0].type", "missing"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema", "missing"),
        ({"conversation": "c", "previous_response_id": "r"}, "conversation", "previous_response_id"),
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        DIALECT.check(body(**fields))
    assert caught.value.param == param
    assert message in str(caught.value)
    assert caught.value.status == 400


def test_instructions_and_items_are_the_conversation_of_a_chat() -> None:
    items = [
        USER,
        {"type": "reasoning", "id": "rs", "summary": []},
        {**said("Let me see."), "id": "msg_1"},
        CALL,
        {**CALL, "call_id": "d"},
        OUTPUT,
        {"role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
    ]
    view = DIALECT.chat_view(body(instructions="Be brief.", input=items))
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert view["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call, {**call, "id": "d"}]},
        {"role": "tool", "tool_call_id": "c", "content": "3"},
        {"role": "system", "content": "Be kind."},
        {"role": "assistant", "content": None, "refusal": "No."},
    ]


def test_what_is_said_before_and_after_a_call_stays_apart() -> None:
    view = DIALECT.chat_view(body(input=[USER, said("First."), CALL, said("Then."), OUTPUT]))
    assert [(m["role"], m["content"]) for m in view["messages"]] == [
        ("user", "hello"),
        ("assistant", "First."),
        ("tool", "3"),
        ("assistant", "Then."),
    ]


def test_instructions_of_several_kinds_are_one_system_message() -> None:
    developer = {"role": "developer", "content": [{"type": "input_text", "text": "Be kind."}]}
    view = DIALECT.chat_view(body(instructions="Be brief.", input=[developer, developer, USER]))
    assert [message["content"] for message in view["messages"]] == [
        "Be brief.\n\nBe kind.\n\nBe kind.",
        "hello",
    ]


def test_what_is_said_after_a_call_joins_its_message() -> None:
    view = DIALECT.chat_view(body(input=[USER, CALL, said("Wait."), OUTPUT]))
    assert [message["role"] for message in view["messages"]] == ["user", "assistant", "tool"]
    assert view["messages"][1]["content"] == "Wait."


def test_an_output_follows_its_call_whatever_was_said_between() -> None:
    other = {**CALL, "call_id": "d"}
    items = [CALL, other, USER, {**OUTPUT, "call_id": "d"}, OUTPUT, {**OUTPUT, "call_id": "lost"}]
    view = DIALECT.chat_view(body(input=items))
    assert [message.get("tool_call_id", message["role"]) for message in view["messages"]] == [
        "assistant", "d", "c", "user", "lost",
    ]  # fmt: skip


def test_the_view_shows_what_a_model_must_be_able_to_do() -> None:
    image = {"type": "input_image", "image_url": "data:,", "detail": "original"}
    view = DIALECT.chat_view(
        body(
            input=[{"role": "user", "content": [{"type": "input_text", "text": "What?"}, image]}],
            tools=[{"type": "function", "name": "f", "parameters": {"a": 1}, "strict": None}],
            text={"format": {"type": "json_schema", "name": "n", "schema": {"b": 2}, "strict": True}},
            max_output_tokens=7,
        )
    )
    assert needed_capabilities(view) == {"tools", "json", "vision"}
    assert view["tools"] == [{"type": "function", "function": {"name": "f", "parameters": {"a": 1}}}]
    assert view["response_format"]["json_schema"] == {"name": "n", "schema": {"b": 2}, "strict": True}
    assert view["messages"][0]["content"][1]["image_url"] == {"url": "data:,", "detail": "high"}
    assert view["max_completion_tokens"] == 7


@pytest.mark.parametrize(
    "given", ["hello", [USER], [{"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]]
)
def test_one_text_may_be_answered_by_similarity(given: Any) -> None:
    assert why_unsafe(DIALECT.chat_view(body(input=given))) == ("", "hello")


@pytest.mark.parametrize(
    "fields",
    [
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"input": "hello", "prompt": {"id": "pmpt_1"}},
        {"input": [{"type": "item_reference", "id": "msg_1"}, USER]},
        {"input": [{"id": "msg_1"}, USER]},
        {"input": [{"type": "hologram"}, USER]},
        {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
        {"input": [USER, CALL, OUTPUT]},
        {"top_logprobs": 2},
        {"include": ["message.output_text.logprobs"]},
        {"input": [USER, said("Hm")]},
        {"input": [{"role": "user", "content": [{"type": "input_text", "text": "a", "cache": 1}]}]},
    ],
)
def test_context_that_is_elsewhere_or_no_text_is_not_answered_by_similarity(fields: dict[str, Any]) -> None:
    reason, text = why_unsafe(DIALECT.chat_view(body(**fields)))
    assert reason
    assert text is None


@pytest.mark.parametrize(
    ("given", "rest"),
    [
        ({"input": "hello"}, {}),
        ({"input": [said("a"), USER]}, {"input": [said("a"), {"role": "user"}]}),
        (
            {"input": [USER, {"type": "reasoning", "id": "rs"}]},
            {"input": [{"role": "user"}, {"type": "reasoning", "id": "rs"}]},
        ),
        ({"input": [USER, CALL, OUTPUT]}, {"input": [USER, CALL, OUTPUT]}),
    ],
)
def test_the_question_is_what_the_view_has_last(given: dict[str, Any], rest: dict[str, Any]) -> None:
    kept = {"model": "auto", "instructions": "Be brief."}
    assert DIALECT.without_question({**kept, **given}) == {**kept, **rest}


def test_two_questions_alike_but_for_their_words_have_one_rest() -> None:
    one, other = (
        DIALECT.without_question(body(input=[said("a"), {"role": "user", "content": text}])) for text in "xy"
    )
    assert one == other
    assert one != DIALECT.without_question(body(input=[said("b"), {"role": "user", "content": "x"}]))


def test_usage_is_read_from_answers_and_events() -> None:
    usage = {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 5}}
    expected = Usage(prompt_tokens=9, completion_tokens=2, cached_tokens=5)
    assert DIALECT.usage({"usage": usage}) == expected
    assert DIALECT.usage({"type": "response.completed", "response": {"usage": usage}}) == expected
    assert DIALECT.usage({"type": "response.output_text.delta", "delta": "a"}) is None
    assert DIALECT.usage({"type": "response.created", "response": {"usage": None}}) is None


@pytest.mark.parametrize(
    ("whole", "why"),
    [
        (answer(said("a")), ""),
        (answer({"type": "reasoning", "summary": []}, CALL), ""),
        (answer({"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}), ""),
        (answer(), "empty"),
        (answer(said(" \n")), "empty"),
        (answer({"type": "reasoning", "summary": []}), "empty"),
        (
            answer(said("a"), status="incomplete", incomplete_details={"reason": "content_filter"}),
            "content_filter",
        ),
        (answer(said("a"), status="failed", incomplete_details=None), "failed"),
        (answer(said("a"), status=None), "no status"),
        (answer({"type": "web_search_call"}, said("a")), "web_search_call, whose result changes"),
        (answer({"type": "mcp_call"}, said("a")), "mcp_call, whose result changes"),
        (answer(said("a"), background=True), "background"),
        (answer(said("a"), conversation={"id": "conv_1"}), "conversation"),
    ],
)
def test_only_whole_answers_of_the_model_itself_are_kept(whole: dict[str, Any], why: str) -> None:
    reason = DIALECT.why_not_stored(whole)
    assert why in reason
    assert bool(why) == bool(reason)


@pytest.mark.parametrize(("stored", "kept"), [({"store": True}, True), ({}, True), ({"store": False}, False)])
def test_an_id_that_the_upstream_knows_is_kept(stored: dict[str, Any], kept: bool) -> None:
    whole = answer(said("a"), created_at=1, completed_at=2, model="up", vendor=1, **stored)
    fresh = DIALECT.renewed(whole, model="auto", now=9.5)
    assert (fresh["id"] == "resp_1") is kept
    assert fresh["id"].startswith("resp_")
    assert (fresh["created_at"], fresh["completed_at"], fresh["model"]) == (9, 9, "auto")
    assert fresh["vendor"] == 1


def test_what_was_said_of_another_user_is_taken_out() -> None:
    whole = answer(said("a"), metadata={"a": "b"}, user="u", safety_identifier="s")
    fresh = DIALECT.renewed(whole, model="auto", now=9.5)
    assert (fresh["metadata"], fresh["user"], fresh["safety_identifier"]) == ({}, None, None)
    assert "prompt_cache_key" not in fresh


def test_an_error_is_an_event_of_its_own() -> None:
    name, data = DIALECT.error_frame(RequestError("Cut.", code="upstream_cut", param="p")).split(b"\n", 1)
    assert name == b"event: error"
    assert data.endswith(b"\n\n")
    event = ResponseErrorEvent.model_validate(orjson.loads(data.removeprefix(b"data: ")))
    assert (event.message, event.code, event.param) == ("Cut.", "upstream_cut", "p")


def test_an_upstreams_error_keeps_its_words() -> None:
    upstream = b'{\n "error": {"message": "Too long.", "type": "t", "param": "input", "code": "c"}\n}'
    error = RequestError("m", upstream_body=upstream)
    assert DIALECT.error_body(error) == upstream
    assert b'"message":"Too long."' in DIALECT.error_frame(error)


def test_a_stream_ends_with_its_last_event() -> None:
    assert DIALECT.end == b""
    last = list(DIALECT.events(answer(said("a")), include_usage=True))[-1]
    assert DIALECT.frame(last).startswith(b"event: response.completed\ndata: {")

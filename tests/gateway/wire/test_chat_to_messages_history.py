"""OpenAI's messages as Anthropic's system prompt and turns."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.errors import RequestError
from gateway.wire.chat_to_messages_history import history
from tests.gateway.wire.messages_cases import HELLO, call, text, tool_use

IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
EPHEMERAL = {"type": "ephemeral"}


def turns(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return history(messages)[1]


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any = None, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


def result(call_id: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def test_system_and_developer_messages_are_the_system_prompt_wherever_they_stand() -> None:
    system, messages = history(
        [
            {"role": "system", "content": "Be brief."},
            *HELLO,
            {"role": "developer", "content": [text("Be kind.", cache_control=EPHEMERAL)]},
        ]
    )
    assert system == [text("Be brief."), text("Be kind.", cache_control=EPHEMERAL)]
    assert messages == HELLO


def test_neighbours_of_one_role_are_one_message() -> None:
    assert turns(user("a"), user([text("b")]), assistant("c"), assistant("d"), user("e")) == [
        user([text("a"), text("b")]),
        assistant([text("c"), text("d")]),
        user("e"),
    ]


def test_tool_results_are_the_users_and_come_first() -> None:
    calls = [call("c1", "f", '{"a": 1}'), call("c2", "g", "")]
    assert turns(
        *HELLO,
        assistant("Let me see.", tool_calls=calls),
        result("c1", "3"),
        user("And?"),
        result("c2", [text("a"), text("b")]),
    ) == [
        *HELLO,
        assistant([text("Let me see."), tool_use("c1", "f", {"a": 1}), tool_use("c2", "g", {})]),
        user(
            [
                {"type": "tool_result", "tool_use_id": "c1", "content": "3"},
                {"type": "tool_result", "tool_use_id": "c2", "content": [text("a"), text("b")]},
                text("And?"),
            ]
        ),
    ]


def test_arguments_that_are_no_json_are_kept() -> None:
    (_, message) = turns(*HELLO, assistant(tool_calls=[call("c", "f", "{")]))
    assert message["content"] == [tool_use("c", "f", {"_raw": "{"})]


@pytest.mark.parametrize(
    ("part", "block"),
    [
        (text("a"), text("a")),
        (text("a", cache_control=EPHEMERAL), text("a", cache_control=EPHEMERAL)),
        (IMAGE_PART, IMAGE),
        (
            {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
            {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}},
        ),
        (
            {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="}},
            {
                "type": "document",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="},
                "title": "a.pdf",
            },
        ),
        (
            {"type": "file", "file": {"file_data": "data:text/csv;charset=utf-8;base64,aGk="}},
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "hi"}},
        ),
    ],
)
def test_parts_are_blocks(part: dict[str, Any], block: dict[str, Any]) -> None:
    assert turns(user([text("Look."), part])) == [user([text("Look."), block])]


def test_an_images_own_result_of_a_tool_is_kept() -> None:
    (message,) = turns(result("c", [IMAGE_PART]))
    assert message["content"][0]["content"] == [IMAGE]


def test_texts_of_white_space_alone_are_left_out() -> None:
    assert turns(user("a"), assistant(""), user([text(" "), text("b")])) == [user([text("a"), text("b")])]


def test_a_text_to_go_on_with_has_no_white_space_at_its_end() -> None:
    assert turns(*HELLO, assistant("It is \n"))[1] == assistant("It is")


def test_a_refusal_is_what_the_assistant_said() -> None:
    assert turns(*HELLO, assistant(refusal="I cannot."), user("Why?"))[1] == assistant("I cannot.")
    parts = [{"type": "refusal", "refusal": "I cannot."}]
    assert turns(*HELLO, assistant(parts), user("Why?"))[1] == assistant("I cannot.")


def test_thinking_comes_back_only_when_it_is_signed() -> None:
    signed = {"type": "thinking", "thinking": "hm", "signature": "s"}
    redacted = {"type": "redacted_thinking", "data": "x"}
    unsigned = {"type": "thinking", "thinking": "hm", "signature": ""}
    message = assistant("a", reasoning_content="hm", thinking_blocks=[signed, redacted, unsigned])
    assert turns(*HELLO, message, user("b"))[1] == assistant([signed, redacted, text("a")])


@pytest.mark.parametrize(
    ("message", "param"),
    [
        (user([{"type": "input_audio", "input_audio": {}}]), "messages[1].content[0].type"),
        (
            user([{"type": "image_url", "image_url": {"url": "x.png"}}]),
            "messages[1].content[0].image_url.url",
        ),
        (user([{"type": "file", "file": {"file_id": "f"}}]), "messages[1].content[0].file.file_id"),
        (user([{"type": "file", "file": {"file_data": "aGk="}}]), "messages[1].content[0].file.file_data"),
        (
            user([{"type": "file", "file": {"file_data": "data:application/zip;base64,aGk="}}]),
            "messages[1].content[0].file.file_data",
        ),
        (
            user([{"type": "file", "file": {"file_data": "data:text/plain;base64,/w=="}}]),  # no UTF-8
            "messages[1].content[0].file.file_data",
        ),
        (assistant(function_call={"name": "f", "arguments": "{}"}), "messages[1].function_call"),
        (assistant(audio={"id": "a"}), "messages[1].audio"),
        (assistant(tool_calls=[{"id": "c", "type": "custom"}]), "messages[1].tool_calls[0].type"),
        ({"role": "function", "name": "f", "content": "3"}, "messages[1].role"),
        (result("c", [{"type": "later"}]), "messages[1].content[0].type"),
    ],
)
def test_what_anthropic_cannot_read_is_named(message: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        history([*HELLO, message])
    assert (caught.value.status, caught.value.param) == (400, param)


def test_a_conversation_of_nothing_is_refused() -> None:
    for messages in ([{"role": "system", "content": "Be brief."}], [user(" ")]):
        with pytest.raises(RequestError) as caught:
            history(messages)
        assert caught.value.param == "messages"

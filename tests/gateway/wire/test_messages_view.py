"""An Anthropic request seen as a chat completion request, and without its question."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.wire.messages_view import chat_view, without_question
from policies.requirements import needed_capabilities
from policies.semantic_safety import why_unsafe
from tests.gateway.wire.messages_cases import HELLO, asking, said, text, tool_use

EPHEMERAL = {"type": "ephemeral"}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
IMAGE_PART = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
TOOL = {"name": "f", "description": "d", "input_schema": {"type": "object"}}


def view(*messages: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    return list(chat_view(asking(messages=list(messages), **fields))["messages"])


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def assistant(*content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(content)}


def result(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t", "content": content, **more}


def test_the_system_prompt_comes_first_as_one_text() -> None:
    blocks = [text("Be brief.", cache_control=EPHEMERAL), text("Be kind.")]
    assert view(*HELLO, system=blocks) == [{"role": "system", "content": "Be brief.\n\nBe kind."}, *HELLO]
    assert view(*HELLO, system="Be brief.")[0] == {"role": "system", "content": "Be brief."}
    assert view(*HELLO, system="") == HELLO


def test_a_system_message_stays_where_it_is() -> None:
    late = {"role": "system", "content": [text("Now be brief.")]}
    assert view(*HELLO, late)[1] == {"role": "system", "content": "Now be brief."}


def test_texts_and_images_are_parts() -> None:
    by_url = {"type": "image", "source": {"type": "url", "url": "https://x/y.png"}}
    (message,) = view(user(text("What?", cache_control=EPHEMERAL), IMAGE, by_url))
    assert message["content"] == [
        text("What?"),
        IMAGE_PART,
        {"type": "image_url", "image_url": {"url": "https://x/y.png"}},
    ]


def test_one_text_alone_is_a_string_as_every_server_knows_it() -> None:
    assert view(user(text("hi"))) == [{"role": "user", "content": "hi"}]
    assert view(user(text("a"), text("b"))) == [user(text("a"), text("b"))]


@pytest.mark.parametrize(
    ("block", "parts"),
    [
        (
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Words."}},
            [text("Words.")],
        ),
        (
            {"type": "document", "title": "T", "context": "C", "source": {"type": "text", "data": "Words."}},
            [text("T\nC"), text("Words.")],
        ),
        (
            {"type": "document", "source": {"type": "content", "content": [text("a"), IMAGE]}},
            [text("a"), IMAGE_PART],
        ),
        (
            {
                "type": "document",
                "title": "T.pdf",
                "source": {"type": "base64", "media_type": "application/pdf", "data": "aGk="},
            },
            [
                {
                    "type": "file",
                    "file": {"filename": "T.pdf", "file_data": "data:application/pdf;base64,aGk="},
                }
            ],
        ),
        (
            {"type": "search_result", "title": "T", "source": "https://x", "content": [text("a"), text("b")]},
            [text("T\nhttps://x\na\nb")],
        ),
    ],
)
def test_documents_are_texts_and_files(block: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    (message,) = view(user(text("Read."), block))
    assert message["content"] == [text("Read."), *parts]


def test_tool_calls_keep_their_ids_and_inputs() -> None:
    (message,) = view(
        assistant(text("Let me "), text("see."), tool_use("t1", "f", {"a": 1}), tool_use("t2", "g", {}))
    )
    assert message == {
        "role": "assistant",
        "content": "Let me see.",
        "tool_calls": [
            {"id": "t1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
            {"id": "t2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
        ],
    }
    assert view(assistant(tool_use("t1", "f", {})))[0]["content"] is None


def test_thinking_of_earlier_turns_is_left_out() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    redacted = {"type": "redacted_thinking", "data": "x"}
    assert view(assistant(thinking, redacted, text("a"))) == [{"role": "assistant", "content": "a"}]


def test_tool_results_come_before_what_the_user_says() -> None:
    assert view(user(text("And?"), result("3"), result([text("a"), text("b")]), result(None))) == [
        {"role": "tool", "tool_call_id": "t", "content": "3"},
        {"role": "tool", "tool_call_id": "t", "content": "a\nb"},
        {"role": "tool", "tool_call_id": "t", "content": ""},
        {"role": "user", "content": "And?"},
    ]


def test_a_tools_error_is_told_as_one() -> None:
    assert view(user(result("no such file", is_error=True)))[0]["content"] == "Error: no such file"


def test_a_tools_image_follows_in_a_message_of_the_users() -> None:
    tool, after = view(user(result([text("Here."), IMAGE])))
    assert tool == {"role": "tool", "tool_call_id": "t", "content": "Here."}
    assert after == {
        "role": "user",
        "content": [text("What the tool returned for the call t:"), IMAGE_PART],
    }


def test_tools_are_functions() -> None:
    tools = [{**TOOL, "cache_control": EPHEMERAL}, {**TOOL, "type": "custom", "strict": True}]
    plain, strict = chat_view(asking(tools=tools))["tools"]
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    assert plain == {"type": "function", "function": function}
    assert strict == {"type": "function", "function": {**function, "strict": True}}


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "tool", "name": "f"}, {"tool_choice": {"type": "function", "function": {"name": "f"}}}),
        (
            {"type": "auto", "disable_parallel_tool_use": True},
            {"tool_choice": "auto", "parallel_tool_calls": False},
        ),
        ({"type": "auto", "disable_parallel_tool_use": False}, {"tool_choice": "auto"}),
        (None, {}),
    ],
)
def test_the_choice_of_a_tool_is_told(choice: Any, said: dict[str, Any]) -> None:
    names = ("tool_choice", "parallel_tool_calls")
    seen = chat_view(asking(tools=[TOOL], tool_choice=choice))
    assert {name: seen[name] for name in names if name in seen} == said
    unarmed = chat_view(asking(tool_choice=choice))
    assert not any(name in unarmed for name in names)


@pytest.mark.parametrize(
    ("fields", "seen"),
    [
        ({"stop_sequences": ["x"]}, {"stop": ["x"]}),
        ({"stop_sequences": []}, {}),
        ({"top_k": 5, "top_p": 0.5, "temperature": 0.2}, {"top_k": 5, "top_p": 0.5, "temperature": 0.2}),
        ({"metadata": {"user_id": "u"}}, {"user": "u"}),
        ({"metadata": {"user_id": None}, "temperature": None}, {}),
        ({"stream": True, "later": 1}, {"stream": True, "later": 1}),
        ({"service_tier": "auto", "speed": "fast", "inference_geo": "eu", "cache_control": EPHEMERAL}, {}),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"reasoning_effort": "low"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 8000}}, {"reasoning_effort": "medium"}),
        ({"thinking": {"type": "enabled", "budget_tokens": 31999}}, {"reasoning_effort": "high"}),
        ({"thinking": {"type": "adaptive"}}, {}),
        (
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "max"}},
            {"reasoning_effort": "high"},
        ),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}, {}),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "answer", "schema": {"type": "object"}, "strict": True},
                }
            },
        ),
    ],
)
def test_fields_have_their_chat_names(fields: dict[str, Any], seen: dict[str, Any]) -> None:
    assert chat_view(asking(**fields)) == {**asking(), **seen}


def test_a_users_id_is_never_longer_than_openai_takes() -> None:
    one, same, other = (chat_view(asking(metadata={"user_id": c * 100}))["user"] for c in "aab")
    assert one == same != other
    assert len(one) == 64


def test_what_a_request_needs_can_be_seen() -> None:
    output = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    body = asking(messages=[user(text("a"), IMAGE)], tools=[TOOL], output_config=output)
    assert needed_capabilities(chat_view(body)) == {"tools", "vision", "json"}


@pytest.mark.parametrize(
    "messages",
    [
        [user(text("a"), IMAGE)],
        [user({"type": "later"}), *HELLO],
        [user({"type": "image", "source": {"type": "file", "file_id": "f"}})],
        [
            *HELLO,
            assistant({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}),
            *HELLO,
        ],
        [*HELLO, assistant(tool_use("t", "f", {})), user(result("3"))],
        [*HELLO, {"role": "assistant", "content": "It is"}],
    ],
)
def test_what_is_not_text_is_never_answered_by_similarity(messages: list[dict[str, Any]]) -> None:
    body = asking(messages=messages)
    reason, compared = why_unsafe(chat_view(body))
    assert compared is None
    assert reason


@pytest.mark.parametrize(
    ("content", "blank"),
    [
        ("What is a cat?", ""),
        ([text("What is a cat?")], [text("")]),
        ([text("What is"), text("a cat?")], [text("What is"), text("")]),
        (
            [text("What is a cat?", cache_control=EPHEMERAL)],
            [text("", cache_control=EPHEMERAL)],
        ),
    ],
)
def test_the_question_is_what_is_compared_and_what_is_taken_out(content: Any, blank: Any) -> None:
    earlier = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hi."}]
    body = asking(messages=[*earlier, {"role": "user", "content": content}], system="Be brief.")
    texts = content if isinstance(content, str) else "\n".join(block["text"] for block in content)
    assert why_unsafe(chat_view(body)) == ("", texts)
    assert without_question(body) == {**body, "messages": [*earlier, {"role": "user", "content": blank}]}


def test_a_hint_to_the_prompt_cache_does_not_hide_the_question() -> None:
    body = asking(messages=[user(text("What is a cat?", cache_control=EPHEMERAL))])
    assert why_unsafe(chat_view(body)) == ("", "What is a cat?")


@pytest.mark.parametrize(
    "last",
    [
        user(),
        user(text("a"), IMAGE),
        user(result("3"), text("a")),
        user({"type": "document", "source": {"type": "text", "data": "Words."}}, text("a")),
        assistant(text("a")),
    ],
)
def test_a_last_message_that_is_more_than_text_stays(last: dict[str, Any]) -> None:
    body = asking(messages=[*HELLO, last])
    assert without_question(body) == body


@given(st.lists(said, min_size=1, max_size=3), st.booleans())
def test_two_requests_with_the_same_rest_differ_in_nothing_but_the_text(texts: list[str], hint: bool) -> None:
    more = {"cache_control": EPHEMERAL} if hint else {}
    one = asking(messages=[user(*(text(words, **more) for words in texts))])
    other = asking(messages=[user(*(text(words, **more) for words in [*texts[:-1], "else"]))])
    assert without_question(one) == without_question(other)
    if len(texts) > 1 and texts[0] != "else":
        about_another = asking(messages=[user(*(text(words, **more) for words in ["else", *texts[1:]]))])
        assert without_question(one) != without_question(about_another)
    assert one["messages"][0]["content"][0]["text"] == texts[0]

"""What of an upstream's stream reaches the client."""

from __future__ import annotations

import pytest

from tests.gateway.api_cases import (
    CHAT,
    COMPLETIONS,
    ApiCase,
    answering,
    ask,
    behind,
    said_in,
)
from tests.upstreams import FakeUpstream, stream_reply

ODD = [
    b": keep-alive\n\n",
    b'data: {"id":"c1","object":"chat.completion.chunk","created":1,"model":"up-m",\r\n'
    b'data: "choices":[{"index":0,"delta":{"role":"assistant","content":"h\\u00e9"},\r\n'
    b'data:   "finish_reason":null}]}\r\n\r\n',
    b'id: 7\nevent: message\ndata: {"id":"c1","choices":[{"index":0,"delta":{"content":"\xe4\xbd\xa0"},'
    b'"finish_reason":"stop"}],"vendor":  [1, 2]}\n\n',
    b": half way\n",
    b'data: {"id":"c1","choices":[],"usage":{"prompt_tokens":11,"completion_tokens":3}}\n\n',
]


async def test_a_stream_with_usage_asked_for_is_the_upstreams_byte_for_byte() -> None:
    sent = [*ODD, b"data: [DONE]\n\n"]
    async with FakeUpstream(lambda _: stream_reply(sent)) as upstream, behind(upstream) as test:
        response = await ask(test, CHAT, stream=True, stream_options={"include_usage": True})
        assert response.content == b"".join(sent)


@pytest.mark.parametrize("size", [1, 2, 7, 64])
async def test_a_stream_cut_anywhere_is_the_same_bytes(size: int) -> None:
    whole = b"".join([*ODD, b"data: [DONE]\n\n"])
    sent = [whole[at : at + size] for at in range(0, len(whole), size)]
    async with FakeUpstream(lambda _: stream_reply(sent)) as upstream, behind(upstream) as test:
        response = await ask(test, CHAT, stream=True, stream_options={"include_usage": True})
        assert response.content == whole


@pytest.mark.parametrize("case", [CHAT, COMPLETIONS], ids=lambda case: case.api)
@pytest.mark.parametrize("spaced", [False, True])
async def test_who_did_not_ask_sees_no_usage_key(case: ApiCase, spaced: bool) -> None:
    events = (
        case.events if spaced else [event.replace(b": ", b":").replace(b", ", b",") for event in case.events]
    )
    async with FakeUpstream(lambda _: stream_reply(events)) as upstream, behind(upstream) as test:
        response = await ask(test, case, stream=True)
        assert "usage" not in response.text
        assert said_in(test, case, response) == "hello"
        assert upstream.received[0].json()["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("case", [CHAT, COMPLETIONS], ids=lambda case: case.api)
async def test_who_did_not_ask_sees_no_usage_key_of_a_translated_stream(case: ApiCase) -> None:
    async with FakeUpstream(answering) as upstream, behind(upstream) as test:
        response = await ask(test, case, model="claude", stream=True)
        assert said_in(test, case, response) == "hello"
        assert "usage" not in response.text
    backends = {
        "fake": {"kind": "openai", "base_url": "http://127.0.0.1:9/v1"},
    }
    async with FakeUpstream(answering) as upstream:
        up = {"kind": "openai", "base_url": upstream.base_url, "apis": ["chat"]}
        models = {"m": {"backend": "up", "name": "up-m"}}
        async with behind(upstream, backends={**backends, "up": up}, models=models) as test:
            response = await ask(test, case, stream=True)
            assert said_in(test, case, response) == "hello"
            assert "usage" not in response.text


async def test_a_server_that_answers_a_streamed_request_in_one_is_streamed_on() -> None:
    async with FakeUpstream(lambda _: CHAT.whole) as upstream, behind(upstream) as test:
        response = await ask(test, CHAT, stream=True)
        assert said_in(test, CHAT, response) == "hello"
        assert response.text.endswith("data: [DONE]\n\n")

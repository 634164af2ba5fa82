"""What the chunks of a generation stand for."""

from __future__ import annotations

from gateway.generation import whole_answer
from gateway.wire.chat_dialect import ChatDialect
from tests.gateways import chunk, whole


def test_a_whole_object_is_kept_as_it_came() -> None:
    body = {"object": "chat.completion", "choices": [], "vendor": 1}
    assert whole_answer([whole(body)], ChatDialect()) == body


def test_one_chunk_is_still_a_stream() -> None:
    choice = {"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}
    answer = whole_answer([chunk({"object": "chat.completion.chunk", "choices": [choice]})], ChatDialect())
    assert answer["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "a"}, "finish_reason": "stop"}
    ]

"""What users of semantic caches report of streams, tools, images and lists as content: one test for each
report."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from policies.types import Api
from tests.cache_cases import PATHS, question
from tests.gateway.admin_cases import cache_of
from tests.gateway.api_cases import CASES, events_of, said, said_in
from tests.gateways import Running, running

BY_API = {case.api: case for case in CASES}
EACH_API = pytest.mark.parametrize("api", list(PATHS))
SKY, SKY_REWORDED = "sky why is it blue?", "sky what makes it blue?"
LONG = " ".join(f"Sentence {number} of the answer." for number in range(40))


async def ask(test: Running, api: Api, text: str, **fields: Any) -> httpx.Response:
    response = await test.http.post(
        PATHS[api],
        json={"model": "small", **question(api, text), **fields},
        headers={"authorization": "Bearer k"},
    )
    assert response.status_code == 200, response.text
    return response


def give(test: Running, text: str) -> None:
    """The backend's whole answers say this from now on."""

    def say(body: dict[str, Any]) -> dict[str, Any]:
        message = {"role": "assistant", "content": text}
        return {**body, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

    test.backend.rewrite = say


@EACH_API
async def test_json_is_not_returned_to_a_streaming_client(api: Api) -> None:
    async with running() as test:
        assert cache_of(await ask(test, api, SKY)) == "miss"
        for text, kind in ((SKY, "hit-exact"), (SKY_REWORDED, "hit-semantic")):
            hit = await ask(test, api, text, stream=True)
            assert cache_of(hit) == kind
            assert hit.headers["content-type"].startswith("text/event-stream")
            assert said_in(test, BY_API[api], hit) == "answer 1"
            whole = await ask(test, api, text)
            assert (cache_of(whole), whole.headers["content-type"]) == (kind, "application/json")
            assert said(BY_API[api], whole.json()) == "answer 1"


@EACH_API
async def test_a_hit_does_not_break_server_sent_events(api: Api) -> None:
    """The kinds of event, their order and the end are those of the upstream's own stream."""
    async with running() as test:
        miss = await ask(test, api, SKY, stream=True)
        for text in (SKY, SKY_REWORDED):
            hit = await ask(test, api, text, stream=True)
            assert cache_of(hit).startswith("hit")
            assert _order(hit) == _order(miss)
            assert hit.text.endswith("\n\n")
            assert hit.text.count("[DONE]") == miss.text.count("[DONE]") == (api in ("chat", "completions"))
            assert all(line == "" or line.startswith(("data: ", "event: ")) for line in hit.text.split("\n"))


def _order(response: httpx.Response) -> list[Any]:
    """The kinds of event, each run of one kind once."""
    kinds: list[Any] = []
    for name, event in events_of(response):
        kind: Any = name
        if isinstance(event, dict) and "choices" in event:
            choices = event["choices"]
            kind = [[*sorted(choice.get("delta", choice)), choice["finish_reason"]] for choice in choices]
        if kinds[-1:] != [kind]:
            kinds.append(kind)
    return kinds


@EACH_API
async def test_streams_are_stored(api: Api) -> None:
    async with running() as test:
        assert cache_of(await ask(test, api, SKY, stream=True)) == "miss"
        for text, kind in ((SKY, "hit-exact"), (SKY_REWORDED, "hit-semantic")):
            for stream in (False, True):
                assert cache_of(await ask(test, api, text, stream=stream)) == kind
        assert len(test.backend.calls) == 1


@EACH_API
async def test_a_replay_is_not_one_chunk(api: Api) -> None:
    async with running() as test:
        give(test, LONG)
        await ask(test, api, SKY)
        hit = await ask(test, api, SKY, stream=True)
        pieces = [event for _, event in events_of(hit) if "Sentence" in str(event) and LONG not in str(event)]
        assert len(pieces) >= 20
        assert said_in(test, BY_API[api], hit) == LONG


async def test_a_replay_keeps_its_tool_calls() -> None:
    call = {"id": "call_7", "type": "function", "function": {"name": "weigh", "arguments": '{"kg": 3}'}}
    tools = [{"type": "function", "function": {"name": "weigh"}}]
    async with running() as test:
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        test.backend.rewrite = lambda body: {**body, "choices": [choice]}
        await ask(test, "chat", SKY, tools=tools)
        hit = await ask(test, "chat", SKY_REWORDED, tools=tools, stream=True)
        assert cache_of(hit) == "hit-semantic"
        assembler = test.gateway.pipeline.generation.dialects.of("chat").assembler()
        for _, event in events_of(hit):
            if event != "[DONE]":
                assembler.add(event)
        (replayed,) = assembler.answer()["choices"]
        assert replayed["message"]["tool_calls"] == [call]
        assert replayed["finish_reason"] == "tool_calls"


def part(api: Api, text: str) -> dict[str, Any]:
    return {"type": "input_text" if api == "responses" else "text", "text": text}


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_list_content_does_not_crash(api: Api) -> None:
    async with running() as test:

        async def asked(*texts: str) -> str:
            turn = {"role": "user", "content": [part(api, text) for text in texts]}
            return cache_of(await ask(test, api, "", **_turns(api, turn)))

        assert await asked(SKY) == "miss"
        assert await asked(SKY) == "hit-exact"
        assert await asked(SKY_REWORDED) == "hit-semantic"
        await asked("A document.", SKY)
        assert await asked("A document.", SKY_REWORDED) == "hit-semantic"
        assert await asked("Another document.", SKY_REWORDED) == "miss"


ODD_CONTENTS: list[Any] = [
    [],
    [{}],
    [{"type": "text"}],
    [{"type": "text", "text": None}],
    ["x"],
    [None],
    [[]],
    5,
    {},
]


@pytest.mark.parametrize("content", ODD_CONTENTS, ids=str)
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_odd_list_content_does_not_crash(api: Api, content: Any) -> None:
    async with running() as test:
        body = {"model": "small", **question(api, ""), **_turns(api, {"role": "user", "content": content})}
        for path, stream in ((PATHS[api], False), (PATHS[api], True)):
            response = await test.http.post(path, json={**body, "stream": stream})
            assert response.status_code in (200, 400), response.text


def image(api: Api, url: str) -> dict[str, Any]:
    match api:
        case "responses":
            return {"type": "input_image", "image_url": url}
        case "messages":
            source = {"type": "base64", "media_type": "image/png", "data": url.partition(",")[2]}
            return {"type": "image", "source": source}
        case _:
            return {"type": "image_url", "image_url": {"url": url}}


def _turns(api: Api, *turns: dict[str, Any]) -> dict[str, Any]:
    return {"input" if api == "responses" else "messages": list(turns)}


PIXELS = "data:image/png;base64," + "iVBORw0KGgo" * 2000
CAT, DOG = PIXELS + "AAAA", PIXELS + "AAAB"
"""They differ in their very last byte."""


@pytest.mark.parametrize("text_first", [True, False], ids=["text first", "image first"])
@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_text_with_an_image_is_not_served_the_answer_to_the_text_alone(
    api: Api, text_first: bool
) -> None:
    plain: dict[str, Any] = {"role": "user", "content": [part(api, SKY)]}
    with_image: dict[str, Any] = {"role": "user", "content": [part(api, SKY), image(api, CAT)]}
    earlier: list[dict[str, Any]] = [with_image, {"role": "assistant", "content": "I see."}, plain]
    async with running() as test:
        asked = [[plain], [with_image], earlier] if text_first else [earlier, [with_image], [plain]]
        for turns in asked:
            assert cache_of(await ask(test, api, "", **_turns(api, *turns))) == "miss"
        assert len({str(call.body["messages"]) for call in test.backend.calls}) == 3


@pytest.mark.parametrize("api", ["chat", "responses", "messages"])
async def test_different_images_do_not_collide(api: Api) -> None:
    async with running() as test:

        async def shown(url: str) -> tuple[str, str]:
            turn = {"role": "user", "content": [part(api, SKY), image(api, url)]}
            reply = await ask(test, api, "", **_turns(api, turn))
            return cache_of(reply), said(BY_API[api], reply.json())

        assert await shown(CAT) == ("miss", "answer 1")
        assert await shown(DOG) == ("miss", "answer 2")
        assert await shown(CAT) == ("hit-exact", "answer 1")
        assert await shown(DOG) == ("hit-exact", "answer 2")

"""OpenAI's client when things go wrong: typed errors, answers that break off, clients that leave."""

from __future__ import annotations

import asyncio

import httpx
import openai
import pytest

from tests.clients.background import BackgroundUpstream
from tests.clients.fake_model import echo
from tests.clients.openai_chat import user
from tests.clients.stack import ARRIVES_WITHIN_S, CANCELLED_WITHIN_S, Stack

BACKENDS = ("gpt", "plain", "claude")


def upstream_of(stack: Stack, model: str) -> BackgroundUpstream:
    return {"gpt": stack.openai, "plain": stack.plain, "claude": stack.claude}[model]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (404, openai.NotFoundError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
    ],
)
def test_an_upstreams_error_is_the_clients_own(
    openai_client: openai.OpenAI, backend: str, stream: bool, status: int, kind: type[openai.APIStatusError]
) -> None:
    with pytest.raises(kind, match=f"The model says {status}") as raised:
        openai_client.chat.completions.create(
            model=f"{backend}-fails-{status}", messages=user("Well?"), stream=stream
        )
    assert raised.value.status_code == status
    assert raised.value.request_id
    assert openai_client.api_key not in str(raised.value)


@pytest.mark.parametrize("model", ["gpt-fails-429", "claude-fails-429"])
def test_an_upstreams_429_says_how_long_to_wait(openai_client: openai.OpenAI, model: str) -> None:
    with pytest.raises(openai.RateLimitError) as raised:
        openai_client.chat.completions.create(model=model, messages=user("Now?"))
    assert raised.value.response.headers["retry-after"] == "40"
    assert raised.value.response.headers["x-ratelimit-remaining-requests"] == "0"


def test_an_error_is_not_kept(openai_client: openai.OpenAI, stack: Stack) -> None:
    before = len(stack.openai.received)
    for _ in range(2):
        with pytest.raises(openai.BadRequestError):
            openai_client.chat.completions.create(model="gpt-fails-400", messages=user("Kept?"))
    assert len(stack.openai.received) == before + 2


def test_the_clients_attempts_do_not_multiply_the_gateways(
    openai_client: openai.OpenAI, stack: Stack
) -> None:
    before = len(stack.openai.received)
    patient = openai_client.with_options(max_retries=3)
    with pytest.raises(openai.InternalServerError) as raised:
        patient.chat.completions.create(model="gpt-fails-503", messages=user("Again?"))
    assert raised.value.response.headers["x-should-retry"] == "false"
    assert len(stack.openai.received) == before + 2  # retries = 1


def test_a_wrong_field_is_named_before_the_upstream_is_asked(
    openai_client: openai.OpenAI, stack: Stack
) -> None:
    before = len(stack.openai.received)
    with pytest.raises(openai.BadRequestError) as raised:
        openai_client.chat.completions.create(
            model="gpt", messages=user("Hot?"), extra_body={"temperature": "hot"}
        )
    assert raised.value.param == "temperature"
    assert len(stack.openai.received) == before


def test_a_field_that_only_the_upstream_knows_to_be_wrong_is_its_error(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="Unrecognized request argument supplied: colour"):
        openai_client.chat.completions.create(
            model="gpt", messages=user("Red?"), extra_body={"colour": "red"}
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_answer_that_breaks_off_is_no_answer(openai_client: openai.OpenAI, backend: str) -> None:
    with pytest.raises(openai.InternalServerError) as raised:
        openai_client.chat.completions.create(model=f"{backend}-dies", messages=user("Whole?"))
    assert raised.value.status_code == 502


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_stream_that_breaks_off_raises_after_its_text_and_is_not_kept(
    openai_client: openai.OpenAI, backend: str
) -> None:
    for _ in range(2):
        raw = openai_client.chat.completions.with_raw_response.create(
            model=f"{backend}-dies", messages=user("Streamed?"), stream=True
        )
        assert raw.headers["x-lockgate-cache"] == "miss"
        told: list[str] = []
        with pytest.raises(openai.APIError) as raised:
            told.extend(chunk.choices[0].delta.content or "" for chunk in raw.parse())
        assert raised.value.code == "upstream_cut"
        assert "".join(told)
        assert echo("Streamed?").startswith("".join(told))


@pytest.mark.parametrize("backend", BACKENDS)
def test_closing_a_stream_reaches_the_upstream(
    openai_client: openai.OpenAI, stack: Stack, backend: str
) -> None:
    upstream = upstream_of(stack, backend)
    before = upstream.aborted
    stream = openai_client.chat.completions.create(
        model=f"{backend}-hangs", messages=user("Left?"), stream=True
    )
    next(iter(stream))
    assert upstream.aborted == before
    stream.close()
    upstream.until(lambda counted: counted.aborted == before + 1, CANCELLED_WITHIN_S)


async def test_cancelling_the_async_client_reaches_the_upstream(stack: Stack) -> None:
    before, asked = stack.openai.aborted, len(stack.openai.received)
    async with openai.AsyncOpenAI(
        base_url=stack.server.base_url, api_key="sk-async", max_retries=0
    ) as client:
        asking = asyncio.ensure_future(
            client.chat.completions.create(model="gpt-hangs", messages=user("Whole and left?"))
        )
        await asyncio.to_thread(
            stack.openai.until, lambda counted: len(counted.received) == asked + 1, ARRIVES_WITHIN_S
        )
        asking.cancel()
        await asyncio.to_thread(
            stack.openai.until, lambda counted: counted.aborted == before + 1, CANCELLED_WITHIN_S
        )
        with pytest.raises(asyncio.CancelledError):
            await asking


def test_a_client_that_times_out_frees_the_upstream(openai_client: openai.OpenAI, stack: Stack) -> None:
    before = stack.openai.aborted
    with pytest.raises(openai.APITimeoutError):
        openai_client.with_options(timeout=0.3).chat.completions.create(
            model="gpt-hangs", messages=user("Too slow?")
        )
    stack.openai.until(lambda counted: counted.aborted == before + 1, CANCELLED_WITHIN_S)


def test_one_who_leaves_does_not_end_the_answer_of_another(stack: Stack) -> None:
    before, asked = stack.openai.aborted, len(stack.openai.received)
    with openai.OpenAI(base_url=stack.server.base_url, api_key="sk-two", max_retries=0) as client:
        raws = [
            client.chat.completions.with_raw_response.create(
                model="gpt-hangs", messages=user("Shared?"), stream=True
            )
            for _ in range(2)
        ]
        assert [raw.headers["x-lockgate-cache"] for raw in raws] == ["miss", "coalesced"]
        streams = [raw.parse() for raw in raws]
        streams[0].close()
        first = next(iter(streams[1]))
        assert first.choices
        assert stack.openai.aborted == before
        streams[1].close()
    stack.openai.until(lambda counted: counted.aborted == before + 1, CANCELLED_WITHIN_S)
    assert len(stack.openai.received) == asked + 1


def test_an_answer_has_the_requests_id(openai_client: openai.OpenAI, stack: Stack) -> None:
    raw = openai_client.chat.completions.with_raw_response.create(
        model="gpt", messages=user("Which id?"), extra_headers={"x-request-id": "mine-1"}
    )
    assert raw.request_id == "mine-1"
    assert raw.parse()._request_id == "mine-1"
    assert raw.headers.get_list("x-request-id") == ["mine-1"]
    assert stack.openai.last.headers["x-request-id"] == "mine-1"
    assert '"status":200' in stack.server.line_with("mine-1").replace(" ", "")
    hit = openai_client.chat.completions.create(model="gpt", messages=user("Which id?"))
    assert hit._request_id
    assert hit._request_id != "mine-1"


def test_a_body_beyond_the_limit_is_413(openai_client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as raised:
        openai_client.chat.completions.create(model="gpt", messages=user("x" * 20_000_000))
    assert (raised.value.status_code, raised.value.code) == (413, "body_too_large")


def test_a_body_that_is_no_json_is_an_error_in_openais_shape(stack: Stack) -> None:
    answer = httpx.post(f"{stack.server.base_url}/chat/completions", content=b"{", timeout=5)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_get_is_not_allowed(stack: Stack) -> None:
    answer = httpx.get(f"{stack.server.base_url}/chat/completions", timeout=5)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert answer.json()["error"]["message"]

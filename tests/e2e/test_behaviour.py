"""What a client sees of a real gateway whose upstream misbehaves, and what that upstream sees of it."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.clients.background import BackgroundUpstream
from tests.e2e.faulty_site import ARRIVES_WITHIN_S, CLIENT_KEY, Answer, Site
from tests.e2e.faulty_upstream import (
    ARGUMENTS,
    CUT_BYTES,
    MODELS,
    TEXTS,
    VENDOR_FIELD,
    FaultyUpstream,
    Stepped,
    cut,
    refusal,
)
from tests.servers import serving
from tests.upstreams import USAGE, frames

OWN_KEY = "sk-own-4b1f0c77"
ABORTED_WITHIN_S = 1.0
CONFIG = """
[cache]
store = "memory"
[cache.policy]
kind = "exact"
[ledger]
enabled = false
[backends.up]
kind = "openai"
base_url = "{base_url}"
api_key = "{key}"
breaker_failure_share = 0
"""
MODEL = '[models.{name}]\nbackend = "up"\nname = "{name}"\n'


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    home = tmp_path_factory.mktemp("home")
    faulty = FaultyUpstream()
    with BackgroundUpstream(faulty) as upstream:
        models = "".join(MODEL.format(name=name) for name in MODELS)
        config = home / "config.toml"
        config.write_text(CONFIG.format(base_url=upstream.base_url, key=OWN_KEY) + models)
        with serving(home, "--config", str(config)) as server:
            yield Site(server=server, upstream=upstream, faulty=faulty)


# Whole answers.


def test_an_answer_and_its_usage_are_kept(site: Site) -> None:
    answer = site.ask("well")
    assert answer.status == 200
    assert [choice["message"]["content"] for choice in answer.json()["choices"]] == ["hello"]
    counts = ("prompt_tokens", "completion_tokens", "total_tokens")
    assert [answer.json()["usage"][name] for name in counts] == [USAGE[name] for name in counts]


def test_cached_tokens_are_kept(site: Site) -> None:
    assert site.ask("well").json()["usage"]["prompt_tokens_details"] == {"cached_tokens": 5}


def test_a_field_nobody_knows_is_kept(site: Site) -> None:
    assert site.ask("well").json()["vendor"] == VENDOR_FIELD


@pytest.mark.parametrize("model", ["well", "refuses-400"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_has_one_request_id_the_clients_own(site: Site, model: str, stream: bool) -> None:
    answer = site.ask(model, stream=stream, headers={"x-request-id": "of-the-client"})
    assert answer.all("x-request-id") == ["of-the-client"]


def test_a_client_without_a_request_id_gets_one(site: Site) -> None:
    (given,) = site.ask("well").all("x-request-id")
    assert given not in ("", "of-the-upstream")


# Streams.


@pytest.mark.parametrize("model", ["well", "ends-at-once", "cut"])
def test_a_stream_has_its_text_one_finish_one_usage_and_its_end(site: Site, model: str) -> None:
    answer = site.stream(model)
    assert answer.text == "".join(TEXTS)
    assert answer.finishes == ["stop"]
    assert answer.usages == [USAGE]
    assert answer.data.count("[DONE]") == 1
    assert answer.data[-1] == "[DONE]"


def test_the_cuts_of_the_cut_stream_are_within_characters_and_lines() -> None:
    pieces = cut(frames(TEXTS))
    assert {len(piece) for piece in pieces[:-1]} == {CUT_BYTES}
    assert any(piece[0] & 0xC0 == 0x80 for piece in pieces), "no piece begins within a character"
    assert any(piece.startswith(b"\n") for piece in pieces), "no piece begins within the end of an event"


def test_tool_call_deltas_are_kept(site: Site) -> None:
    answer = site.ask("calls-tools", stream=True)
    calls = [call for choice in answer.choices for call in choice["delta"].get("tool_calls") or []]
    assert [call["index"] for call in calls] == [0] * (1 + len(ARGUMENTS))
    assert calls[0]["id"] == "call_1"
    assert calls[0]["type"] == "function"
    assert calls[0]["function"]["name"] == "weather"
    assert [call["function"]["arguments"] for call in calls] == ["", *ARGUMENTS]
    assert answer.finishes == ["tool_calls"]
    assert answer.data[-1] == "[DONE]"


@pytest.mark.parametrize("model", ["well", "ends-at-once"])
@pytest.mark.parametrize("options", [{}, {"stream_options": {"include_usage": False}}])
def test_a_stream_tells_no_usage_unless_asked(site: Site, model: str, options: dict[str, Any]) -> None:
    answer = site.ask(model, stream=True, **options)
    assert answer.text == "".join(TEXTS)
    assert answer.usages == []
    assert all(event["choices"] for event in answer.events)
    assert answer.data[-1] == "[DONE]"


def test_each_piece_of_a_stream_comes_before_the_upstream_sends_the_next(site: Site) -> None:
    steps = Stepped(frames(TEXTS, usage=False))
    site.faulty.steps = steps
    with site.asking("steps", stream=True) as (connection, _), connection.getresponse() as response:
        came = []
        for sent in list.__iter__(steps):
            came.append(next_data(response))
            if sent.startswith(b"data: {"):
                wanted, given = (json.loads(data)["choices"][0] for data in (sent[6:], came[-1]))
                assert given["delta"] == wanted["delta"]
                assert given["finish_reason"] == wanted["finish_reason"]
            steps.let_on()
        assert came[-1] == b"[DONE]"
        assert response.read().strip() == b""


def next_data(response: http.client.HTTPResponse) -> bytes:
    """The data of the next event, as soon as it is there. Raises TimeoutError."""
    while not (line := response.readline()).startswith(b"data: "):
        assert line, "the stream has ended"
    return line[6:].strip()


# Clients that leave.


@pytest.mark.parametrize("model", ["drips", "hangs"])
def test_a_client_that_leaves_in_mid_stream_aborts_the_upstream(site: Site, model: str) -> None:
    before = site.upstream.aborted
    with site.asking(model, stream=True) as (connection, question), connection.getresponse() as response:
        first, second = (json.loads(next_data(response)) for _ in range(2))
        assert first["choices"][0]["delta"]["role"] == "assistant"
        assert second["choices"][0]["delta"]["content"] in (TEXTS[0], "drop ")
        assert site.upstream.aborted == before
    site.upstream.until(lambda up: up.aborted == before + 1, ABORTED_WITHIN_S)
    assert len(site.received(question)) == 1


def test_a_client_that_leaves_before_its_answer_aborts_the_upstream(site: Site) -> None:
    before = site.upstream.aborted
    with site.asking("hangs") as (_, question):
        site.upstream.until(lambda _: bool(site.received(question)), ARRIVES_WITHIN_S)
        assert site.upstream.aborted == before
    site.upstream.until(lambda up: up.aborted == before + 1, ABORTED_WITHIN_S)
    assert len(site.received(question)) == 1


# Upstreams that fail.


def test_an_upstream_that_dies_in_mid_stream_is_told_of_and_never_ends_well(site: Site) -> None:
    answer = site.ask("dies", stream=True)
    assert answer.status == 200
    assert answer.text == "".join(TEXTS)
    assert answer.finishes == []
    assert "[DONE]" not in answer.data
    told = answer.events[-1]["error"]
    assert isinstance(told["message"], str)
    assert isinstance(told["type"], str)
    assert len(site.received(answer.question)) == 1


@pytest.mark.parametrize("status", [400, 429, 500])
def test_an_upstreams_refusal_is_kept_and_not_asked_for_again(site: Site, status: int) -> None:
    answer = site.ask(f"refuses-{status}")
    assert answer.status == status
    assert answer.json() == refusal(status, "Bearer [redacted]")
    assert len(site.received(answer.question)) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_retry_after_is_kept(site: Site, stream: bool) -> None:
    answer = site.ask("refuses-429", stream=stream)
    assert answer.status == 429
    assert answer.all("retry-after") == ["7"]
    assert len(site.received(answer.question)) == 1


def test_a_page_for_an_error_becomes_json(site: Site) -> None:
    answer = site.ask("page-502")
    assert answer.status == 502
    assert_openai_error(answer)
    assert b"<html>" not in answer.body


@pytest.mark.parametrize("stream", [False, True])
def test_broken_json_is_the_servers_fault(site: Site, stream: bool) -> None:
    answer = site.ask("broken-json", stream=stream)
    assert answer.status == 502
    assert_openai_error(answer)


def assert_openai_error(answer: Answer) -> None:
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)


# Clients that err.


@pytest.mark.parametrize("raw", [b"{bad", b'{"model": "well", "messages": [', b'"well"', b"\xff"])
def test_a_request_that_is_no_json_is_refused_unasked(site: Site, raw: bytes) -> None:
    before = len(site.upstream.received)
    answer = site.ask("well", raw=raw)
    assert answer.status == 400
    assert_openai_error(answer)
    assert len(site.upstream.received) == before


def test_a_model_nobody_knows_is_not_found(site: Site) -> None:
    answer = site.ask("nobody-knows-me")
    assert answer.status == 404
    assert_openai_error(answer)
    assert answer.json()["error"]["code"] == "model_not_found"
    assert site.received(answer.question) == []


# What each side may see of the other.


@pytest.mark.parametrize("stream", [False, True])
def test_a_clients_key_cookies_and_unknown_headers_do_not_go_up(site: Site, stream: bool) -> None:
    own = {"cookie": "session=s-1", "x-custom-a": "a-1", "x-api-key": CLIENT_KEY, "api-key": CLIENT_KEY}
    answer = site.ask("well", stream=stream, headers=own)
    (request,) = site.received(answer.question)
    assert request.headers["authorization"] == f"Bearer {OWN_KEY}"
    assert not set(own) & set(request.headers)
    seen = request.path + json.dumps(dict(request.headers)) + request.body.decode()
    assert not [secret for secret in (CLIENT_KEY, "s-1", "a-1") if secret in seen]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "model",
    [
        "refuses-400",
        "refuses-429",
        "refuses-500",
        "page-502",
        "broken-json",
        "dies",
        "nobody-knows-me",
    ],
)
def test_no_key_is_in_an_error(site: Site, model: str, stream: bool) -> None:
    """What the upstream fails with quotes the gateway's key."""
    answer = site.ask(model, stream=stream)
    shown = answer.body.decode() + json.dumps(answer.headers)
    assert '"error"' in shown
    assert not [key for key in (OWN_KEY, CLIENT_KEY) if key in shown]

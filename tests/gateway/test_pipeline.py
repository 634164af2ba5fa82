"""The path of a request, with fakes at its two ends."""

from __future__ import annotations

import time
from typing import Any

import pytest

from backends.errors import (
    EngineUnavailable,
    InvalidCall,
    Overloaded,
    UpstreamCut,
    UpstreamInvalid,
    UpstreamRejected,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from embeddings.protocols import EmbedderError
from tests.gateways import SETTINGS, events, running, told


async def test_miss_then_exact_then_semantic_then_miss() -> None:
    async with running() as test:
        first = await test.ask("sky why is it blue?")
        again = await test.ask("sky why is it blue?")
        reworded = await test.ask("sky what makes it blue?")
        other = await test.ask("sea why is it salty?")
        kinds = [r.headers["x-lockgate-cache"] for r in (first, again, reworded, other)]
        assert kinds == ["miss", "hit-exact", "hit-semantic", "miss"]
        assert [told(r) for r in (first, again, reworded, other)] == ["answer 1"] * 3 + ["answer 2"]
        assert len(test.backend.calls) == 2


async def test_headers_of_a_miss() -> None:
    async with running() as test:
        headers = (await test.ask()).headers
        assert headers["x-lockgate-reason"] == "nothing cached is comparable"
        assert headers["cache-status"] == "lockgate; fwd=uri-miss; stored"
        assert headers["x-lockgate-route"] in ("small", "large")
        assert headers["x-lockgate-model"] == f"fake-{headers['x-lockgate-route']}"
        assert headers["x-lockgate-backend"] == "fake"
        assert "score" in headers["x-lockgate-route-reason"]
        assert {part.split(";")[0] for part in headers["server-timing"].split(", ")} >= {
            "embed",
            "search",
            "upstream",
        }
        assert len(headers.get_list("x-request-id")) == 1
        assert "x-lockgate-entry" not in headers


async def test_a_hit_is_a_fresh_answer_in_form() -> None:
    async with running() as test:
        first = await test.ask()
        hit = await test.ask()
        assert hit.headers["x-lockgate-entry"].isdigit()
        assert hit.headers["x-lockgate-similarity"] == "1.0000"
        assert int(hit.headers["age"]) >= 0
        assert "x-lockgate-route" not in hit.headers
        a, b = first.json(), hit.json()
        assert b["id"] != a["id"]
        assert b["created"] >= int(time.time()) - 5
        assert b["model"] == "auto"
        assert b["usage"] == a["usage"]
        assert b["choices"] == a["choices"]
        assert b["vendor"] == "v"


@pytest.mark.parametrize("stream", [False, True])
async def test_either_form_is_stored_and_serves_both(stream: bool) -> None:
    async with running() as test:
        first = await test.ask(stream=stream)
        assert first.headers["x-lockgate-cache"] == "miss"
        for form in (False, True):
            hit = await test.ask(stream=form)
            assert hit.headers["x-lockgate-cache"] == "hit-exact"
            assert told(hit) == told(first) == "answer 1"
            is_stream = hit.headers["content-type"].startswith("text/event-stream")
            assert is_stream is form
            if form:
                assert hit.text.endswith("data: [DONE]\n\n")
                reasons = [c["finish_reason"] for e in events(hit) for c in e["choices"]]
                assert [reason for reason in reasons if reason] == ["stop"]


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("asked", [False, True])
async def test_usage_in_a_stream_is_given_when_asked_for(cached: bool, asked: bool) -> None:
    async with running() as test:
        if cached:
            await test.ask()
        options: dict[str, Any] = {"stream_options": {"include_usage": True}} if asked else {}
        response = await test.ask(stream=True, **options)
        usages = [event["usage"] for event in events(response) if event.get("usage")]
        assert [u["total_tokens"] for u in usages] == ([14] if asked else [])


async def test_tenants_never_meet() -> None:
    async with running() as test:
        await test.ask(key="alice")
        same = await test.ask("sky why is it blue?", key="bob")
        near = await test.ask("sky what makes it blue?", key="carol")
        assert [same.headers["x-lockgate-cache"], near.headers["x-lockgate-cache"]] == ["miss", "miss"]


async def test_everyone_shares_only_when_the_config_says_so() -> None:
    async with running(cache={**SETTINGS["cache"], "share": "everyone"}) as test:
        await test.ask(key="alice")
        assert (await test.ask(key="bob")).headers["x-lockgate-cache"] == "hit-exact"


async def test_in_passthrough_the_credential_goes_upstream_and_in_open_none_does() -> None:
    async with running() as test:
        await test.ask(key="alice")
        assert test.backend.calls[0].credential == "Bearer alice"
    async with running(auth={"mode": "open"}) as test:
        await test.ask(key="alice")
        assert test.backend.calls[0].credential is None
        assert (await test.ask(key="bob")).headers["x-lockgate-cache"] == "hit-exact"


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"finish_reason": "length"}, "cut"),
        ({"finish_reason": "content_filter"}, "filtered"),
        ({"finish_reason": None}, "unfinished"),
        ({"message": {"role": "assistant", "content": "  "}}, "empty"),
        ({"message": {"role": "assistant", "content": None}}, "none"),
    ],
)
async def test_what_is_not_a_clean_answer_is_never_stored(changed: dict[str, Any], why: str) -> None:
    async with running() as test:
        test.backend.rewrite = lambda body: {**body, "choices": [{**body["choices"][0], **changed}]}
        await test.ask()
        again = await test.ask()
        assert again.headers["x-lockgate-cache"] == "miss", why
        assert again.headers["cache-status"] == "lockgate; fwd=uri-miss"


async def test_tool_calls_and_refusals_are_stored() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    for message, reason in (
        ({"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"),
        ({"role": "assistant", "content": None, "refusal": "No."}, "stop"),
    ):
        async with running() as test:
            choice = {"index": 0, "message": message, "finish_reason": reason}
            test.backend.rewrite = lambda body, choice=choice: {**body, "choices": [choice]}  # type: ignore[misc]
            await test.ask()
            hit = await test.ask()
            assert hit.headers["x-lockgate-cache"] == "hit-exact"
            assert hit.json()["choices"] == [choice]


REJECTION = b'{"error": {"message": "slow down", "type": "rate_limit_exceeded", "param": null, "code": null}}'


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (
            UpstreamRejected("slow down", status=429, body=REJECTION, headers={"retry-after": "7"}),
            429,
            "slow down",
        ),
        (UpstreamRejected("bad gateway", status=502, body=b"", headers={}), 502, "bad gateway"),
        (UpstreamRejected("flat", status=400, body=b'{"error": "flat"}', headers={}), 400, "flat"),
        (UpstreamUnreachable("nobody there"), 502, "nobody there"),
        (UpstreamTimeout("too late"), 504, "too late"),
        (UpstreamInvalid("not JSON"), 502, "not JSON"),
        (UpstreamCut("broke off"), 502, "broke off"),
        (InvalidCall("tools: not supported", param="tools"), 400, "tools"),
        (Overloaded("full", retry_after_s=2.2), 429, "full"),
        (EngineUnavailable("restarting"), 503, "restarting"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_errors_before_the_first_chunk_are_statuses(
    error: Any, status: int, said: str, stream: bool
) -> None:
    async with running() as test:
        test.backend.error = error
        response = await test.ask(stream=stream)
        assert response.status_code == status
        told_error = response.json()["error"]
        assert said in told_error["message"]
        assert isinstance(told_error["type"], str)
        if status == 429:
            assert response.headers["retry-after"] == ("7" if "slow" in said else "3")
        test.backend.error = None
        assert (await test.ask()).headers["x-lockgate-cache"] == "miss", "an error is never replayed"


async def test_an_upstream_that_dies_in_mid_stream_is_signalled_and_not_stored() -> None:
    async with running() as test:
        test.backend.error, test.backend.error_after = UpstreamCut("broke off"), 2
        response = await test.ask(stream=True)
        assert response.status_code == 200
        assert "[DONE]" not in response.text
        assert events(response)[-1]["error"]["message"] == "broke off"
        test.backend.error = None
        assert (await test.ask()).headers["x-lockgate-cache"] == "miss"


@pytest.mark.parametrize("temperature", [1.5, 2])
async def test_above_max_temperature_the_cache_is_bypassed(temperature: float) -> None:
    async with running() as test:
        for _ in range(2):
            response = await test.ask(temperature=temperature)
            assert response.headers["x-lockgate-cache"] == "bypass"
            assert "above 1" in response.headers["x-lockgate-reason"]
        assert len(test.backend.calls) == 2


async def test_a_cache_that_is_off_is_bypassed_and_routing_still_decides() -> None:
    async with running(cache={"enabled": False}) as test:
        response = await test.ask()
        assert response.headers["x-lockgate-cache"] == "bypass"
        assert response.headers["x-lockgate-route"] in ("small", "large")
        assert "embed" in response.headers["server-timing"]


async def test_policy_modes() -> None:
    policy = SETTINGS["cache"]["policy"]
    async with running(cache={"store": "memory", "policy": {**policy, "mode": "off"}}) as test:
        await test.ask("sky why is it blue?")
        assert (await test.ask("sky what makes it blue?")).headers["x-lockgate-cache"] == "miss"
        assert (await test.ask("sky why is it blue?")).headers["x-lockgate-cache"] == "hit-exact"
    async with running(cache={"store": "memory", "policy": {**policy, "mode": "shadow"}}) as test:
        await test.ask("sky why is it blue?")
        shadow = await test.ask("sky what makes it blue?")
        assert shadow.headers["x-lockgate-cache"] == "miss"
        assert told(shadow) == "answer 2"
        metrics = (await test.http.get("/metrics")).text
        assert "lockgate_cache_shadow_hits_total 1.0" in metrics


async def test_cache_control() -> None:
    async with running() as test:
        only = await test.ask(headers={"cache-control": "only-if-cached"})
        assert only.status_code == 504
        assert not test.backend.calls
        kept_out = await test.ask(headers={"cache-control": "no-store"})
        assert kept_out.headers["x-lockgate-cache"] == "miss"
        assert (await test.ask()).headers["x-lockgate-cache"] == "miss", "no-store stored nothing"
        assert (await test.ask(headers={"cache-control": "only-if-cached"})).status_code == 200
        assert told(await test.ask(headers={"cache-control": "max-age=60"})) == "answer 2"
        assert told(await test.ask(headers={"cache-control": "max-age=0, x"})) == "answer 3"
        refreshed = await test.ask(headers={"cache-control": "no-cache"})
        assert refreshed.headers["x-lockgate-cache"] == "bypass"
        assert told(refreshed) == "answer 4"
        assert told(await test.ask()) == "answer 4", "the newer answer replaced the older one"
        assert (await test.ask(headers={"cache-control": "max-age=x"})).status_code == 400


async def test_a_dead_embedder_costs_hits_and_no_request() -> None:
    async with running() as test:

        def fail() -> None:
            raise EmbedderError("it is dead")

        test.embedder.delay = fail
        response = await test.ask()
        assert response.headers["x-lockgate-cache"] == "miss"
        assert response.headers["x-lockgate-reason"] == "the embedder gave no vector in time"
        assert "from the wording alone" in response.headers["x-lockgate-route-reason"]
        assert (await test.ask()).headers["x-lockgate-cache"] == "hit-exact"
        ready = (await test.http.get("/health/ready")).json()
        assert ready["status"] == "degraded"
        assert ready["degraded"] == {"embedder": "it is dead"}
        assert 'lockgate_cache_faults_total{part="embedder"}' in (await test.http.get("/metrics")).text


async def test_a_slow_embedder_is_left_at_the_deadline() -> None:
    async with running(embeddings={"deadline_ms": 50}) as test:
        test.embedder.delay = lambda: time.sleep(0.5)
        began = time.perf_counter()
        assert (await test.ask()).status_code == 200
        assert time.perf_counter() - began < 0.4


async def test_a_question_longer_than_the_window_is_never_compared() -> None:
    async with running() as test:
        long = "sky " * 60
        for _ in range(2):
            response = await test.ask(f"{long} and one more thing {_}")
            assert response.headers["x-lockgate-cache"] == "miss"
            assert "longer than the embedder's window" in response.headers["x-lockgate-reason"]
        assert "lockgate_embedder_truncated_total 2.0" in (await test.http.get("/metrics")).text


async def test_a_text_of_megabytes_is_not_even_tokenized() -> None:
    async with running() as test:

        def refuse() -> None:
            raise AssertionError("the embedder was asked")

        test.embedder.delay = refuse
        response = await test.ask("x" * 1_000_000)
        assert "longer than the embedder's window" in response.headers["x-lockgate-reason"]
        assert "embed" not in response.headers["server-timing"]


async def test_conversations_share_only_with_the_same_history() -> None:
    async with running() as test:

        async def talk(first: str, last: str) -> str:
            messages = [
                {"role": "user", "content": first},
                {"role": "assistant", "content": "Shall I?"},
                {"role": "user", "content": last},
            ]
            kind: str = (await test.ask(messages=messages)).headers["x-lockgate-cache"]
            return kind

        assert await talk("order 1", "cancel it please") == "miss"
        assert await talk("order 1", "cancel it please, thanks") == "hit-semantic"
        assert await talk("order 2", "cancel it please") == "miss"


async def test_money() -> None:
    async with running() as test:
        miss = await test.ask()
        await test.ask()
        price = 11 * (1.0 if miss.headers["x-lockgate-route"] == "small" else 10.0) / 1e6
        stats = (await test.http.get("/admin/stats")).json()
        assert stats["cost_usd"] == stats["saved_usd"] == pytest.approx(price, abs=1e-6)
        assert stats["by_cache"] == {"hit-exact": 1, "miss": 1}
        assert stats["hit_ratio"] == 0.5
        assert stats["entries"] == 1
        assert stats["saved_tokens"] == 14

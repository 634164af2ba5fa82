"""However a server behaves, one request costs it no more requests than the budget: counted by the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.errors import BackendError
from backends.openai import OpenAIBackend
from backends.protocols import Call, CallReport, Chunk
from gateway.attempts import Attempts, Candidate, Progress, Resilience
from policies.breaker import CircuitBreaker
from tests.upstreams import FakeUpstream, Received, Reply, answer_ok, error_reply, frames, stream_reply

REPLIES: dict[str, Reply | None] = {
    "ok": None,
    "cut": stream_reply(frames()[:2], end="reset"),
    "reset": Reply(status=0, end="reset"),
    "cut before the answer": stream_reply([], end="reset"),
    "empty": stream_reply([]),
    "html": Reply(content_type="text/html", pieces=[b"<html>"]),
    "refuses stream_options": error_reply(400, "stream_options is not supported"),
    "400": error_reply(400, "no"),
    "429": error_reply(429, "slow down"),
    "429, at once": error_reply(429, "slow down", retry_after="0"),
    "503": error_reply(503, "busy"),
    "503, much later": error_reply(503, "busy", retry_after="900"),
    "500": error_reply(500, "broken"),
}


async def no_sleep(seconds: float) -> None:
    pass


async def requests_of(
    outcomes: Sequence[str], *, models: int, retries: int, stream: bool, hedged: bool
) -> tuple[int, int]:
    """(counted by the server, counted by us) for one request to which the server answers so."""
    left = [REPLIES[outcome] for outcome in outcomes]

    def answer(request: Received) -> Reply:
        return (left.pop(0) if left else None) or answer_ok(request)

    async with FakeUpstream(answer) as upstream:
        backends = [OpenAIBackend(f"up{n}", upstream.base_url) for n in range(models)]
        resilience = {
            backend.name: Resilience(
                retries=retries,
                hedge_after_s=0.0 if hedged else None,
                breaker=CircuitBreaker(failure_share=0.0),
            )
            for backend in backends
        }
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream}

        def candidate(backend: OpenAIBackend) -> Candidate:
            def opened(report: CallReport, deadline: float) -> AsyncIterator[Chunk]:
                return backend.stream(Call(body=body, deadline=deadline, report=report))

            return Candidate(model="m", backend=backend, open=opened)

        progress = Progress()
        try:
            async for _ in Attempts(resilience, sleep=no_sleep).stream(
                [candidate(backend) for backend in backends], progress
            ):
                pass
        except BackendError:
            pass
        for backend in backends:
            await backend.aclose()
        return len(upstream.received), progress.requests


@settings(max_examples=60, deadline=None)
@given(
    outcomes=st.lists(st.sampled_from(sorted(REPLIES)), max_size=8),
    models=st.integers(1, 3),
    retries=st.integers(0, 3),
    stream=st.booleans(),
    hedged=st.booleans(),
)
def test_requests_stay_within_the_budget(
    outcomes: list[str], models: int, retries: int, stream: bool, hedged: bool
) -> None:
    asked, counted = asyncio.run(
        requests_of(outcomes, models=models, retries=retries, stream=stream, hedged=hedged)
    )
    assert 1 <= asked <= max(1 + retries, models)
    assert asked <= counted, "what the server saw, the log tells"

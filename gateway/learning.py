"""What becomes of a cache policy's decisions: outcomes, in the background, and what follows from them."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

import structlog
from msgspec.structs import replace

from backends.errors import BackendError
from embeddings.protocols import EmbedderError, SemanticCache, StoreError
from gateway.answer_judge import AnswerJudge
from gateway.catalog import Model
from gateway.errors import RequestError
from gateway.generating import ClientContext
from gateway.generation import Generation
from gateway.ids import random_hex
from gateway.lookup import Lookup
from gateway.metrics import Metrics
from gateway.policy_state import PolicyStateFile
from gateway.served import Served
from gateway.trace import Trace
from policies.bounded import BoundedPolicy
from policies.conversation import shown
from policies.types import Observation, Query, Request

MAX_RUNNING: Final = 32
"""Comparisons at once. What comes on top is not made: an outcome less, and no queue that grows."""
SAVE_EVERY_S: Final = 10.0


Choose = Callable[[Request, Mapping[str, Any], Query, Trace], Sequence[Model]]
"""Which models a request, its chat form and its query go to, as the trace then tells."""


class Learner:
    """Generates a share of the served answers anew (`verify_share`), compares what was generated with what
    could have been served, and tells the policy, which is shared with the look-up. `state`: where it is
    kept."""

    def __init__(
        self,
        *,
        policy: BoundedPolicy,
        cache: SemanticCache,
        generation: Generation,
        judge: AnswerJudge,
        metrics: Metrics,
        verify_share: float,
        clock: Callable[[], float],
        state: PolicyStateFile | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._policy = policy
        self._cache = cache
        self._generation = generation
        self._judge = judge
        self._metrics = metrics
        self._verify_share = verify_share
        self._clock = clock
        self._state = state
        self._chance = chance
        self._running: set[asyncio.Task[None]] = set()
        self._saving: asyncio.Task[None] | None = None
        self._one_save = asyncio.Lock()
        self._notice = ""
        self._log = structlog.get_logger("lockgate")

    @property
    def notice(self) -> str:
        """Empty unless outcomes contradict the calibration."""
        return self._policy.notice()

    def served(self, request: Request, lookup: Lookup, choose: Choose, client: ClientContext) -> None:
        """After an answer was served by similarity: by chance, what a model would have said is found out."""
        if self._chance() < self._verify_share:
            self._begin(self._verify(request, lookup, choose, client))

    def generated(self, lookup: Lookup, answer: Mapping[str, Any], entry_id: int | None) -> None:
        """After an answer was generated, and kept as `entry_id`: compared, where the policy asked for it."""
        if lookup.verdict is not None and lookup.verdict.compare:
            self._begin(self._explored(lookup, answer, entry_id))

    def feedback(self, served: Served, *, right: bool) -> None:
        """What a user says of an answer. Of one without a probability nothing is learnt."""
        if served.probability is not None:
            self._learn(
                Observation(
                    entry_id=served.entry_id, probability=served.probability, right=right, source="feedback"
                )
            )

    async def settled(self) -> None:
        """Until the comparisons in hand have ended."""
        while self._running:
            await asyncio.wait(self._running)

    async def aclose(self) -> None:
        for task in [*self._running, *([self._saving] if self._saving else [])]:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._save(closing=True)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        if len(self._running) >= MAX_RUNNING:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (BackendError, RequestError, StoreError, EmbedderError) as error:
            self._log.info("not_compared", detail=str(error))

    async def _verify(self, request: Request, lookup: Lookup, choose: Choose, client: ClientContext) -> None:
        assert lookup.entry is not None
        assert lookup.identity is not None
        trace = Trace(request_id=f"verify_{random_hex()}", tenant=request.tenant, api=request.api)
        trace.asked_model = request.model
        models = choose(request, lookup.chat, lookup.query, trace)
        fresh = await self._generation.ask(request, lookup, models, replace(client, charge=_nobody), trace)
        asked = shown(lookup.identity.text or "")
        right = await self._judge.agree(asked, fresh, lookup.entry.answer.body)
        if right is None:
            return
        self._outcome(lookup, right=right, source="verification")
        self._metrics.cache.judged(right)
        await self._cache.note(lookup.entry.id, right=right)
        if not right:  # the question gets an answer of its own
            await self._generation.keep(request, lookup, fresh, trace)

    async def _explored(self, lookup: Lookup, answer: Mapping[str, Any], entry_id: int | None) -> None:
        verdict = lookup.verdict
        assert verdict is not None
        assert verdict.considered is not None
        assert lookup.identity is not None
        found = await self._cache.inspect(verdict.considered.entry_id, self._clock())
        if found is None:
            return
        asked = shown(lookup.identity.text or "")
        right = await self._judge.agree(asked, answer, found[0].answer.body)
        if right is None:
            return
        self._outcome(lookup, right=right, source="exploration")
        if entry_id is not None and not verdict.keeps(right=right):
            await self._cache.withdraw(entry_id)

    def _outcome(self, lookup: Lookup, *, right: bool, source: Any) -> None:
        verdict = lookup.verdict
        if verdict is None or verdict.considered is None or verdict.probability is None:
            return
        self._learn(
            Observation(
                entry_id=verdict.considered.entry_id,
                probability=verdict.probability,
                right=right,
                source=source,
                kind="question" if lookup.identity is None else lookup.identity.kind,
            )
        )

    def _learn(self, observation: Observation) -> None:
        self._policy.learn(observation)
        self._metrics.cache.learnt(observation.source, observation.right)
        notice = self._policy.notice()
        if notice != self._notice:
            self._notice = notice
            self._metrics.cache.drift.set(1.0 if notice else 0.0)
            if notice:
                self._log.warning("calibration_drift", detail=notice)
        if self._state is not None and self._saving is None:
            self._saving = asyncio.get_running_loop().create_task(self._save_soon())

    async def _save_soon(self) -> None:
        await asyncio.sleep(SAVE_EVERY_S)
        self._saving = None
        await self._save()

    async def _save(self, *, closing: bool = False) -> None:
        if self._state is None:
            return
        try:
            async with self._one_save:  # two that write at once would spoil each other's file
                await asyncio.to_thread(self._state.save, self._policy.state(closing=closing))
        except OSError as error:
            self._log.warning("policy_state_not_saved", detail=error.strerror)


def _nobody(tokens: int, cost_usd: float) -> None:
    """Verification is not the client's to pay for by its limits."""

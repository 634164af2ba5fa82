"""Which of the questions that are being answered right now a new one may share the answer of."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from gateway.lookup import Lookup
from gateway.single_flight import Flight, Question, SingleFlight
from policies.types import Candidate, Identity, Request, Verdict

NEAR_FLIGHTS = 5
"""How many of the flights nearest to a question its policy looks at, as with cached answers."""

Judge = Callable[[Request, Identity, Sequence[Candidate]], Verdict]


class Joined(msgspec.Struct, frozen=True, kw_only=True):
    """A flight to follow, and why. `similarity` is None where the request is the same."""

    flight: Flight
    reason: str
    similarity: float | None = None


def question_of(lookup: Lookup) -> Question | None:
    """What others can compare their question to; None when it is not safe to answer by similarity."""
    identity = lookup.identity
    if identity is None or identity.text is None or lookup.vector is None:
        return None
    return Question(
        partition=(*identity.owner, identity.partition), text=identity.text, vector=lookup.vector.vector
    )


def join(flights: SingleFlight, request: Request, lookup: Lookup, judge: Judge, now: float) -> Joined | None:
    """The flight of an equal request, or of a question that the cache policy (`judge`) would serve the answer
    of. Only flights whose answer may be kept are there to be joined."""
    identity = lookup.identity
    if identity is None or request.cache.no_cache or request.cache.no_store:
        return None
    equal = flights.find((*identity.owner, identity.exact_key))
    if equal is not None:
        return Joined(flight=equal, reason="the same request is being answered now")
    question = question_of(lookup)
    if question is None:
        return None
    near = flights.near(question.partition, question.vector)[:NEAR_FLIGHTS]
    candidates = [
        Candidate(entry_id=at, similarity=similarity, text=other.text, created_at=now)
        for at, (_, other, similarity) in enumerate(near)
    ]
    verdict = judge(request, identity, candidates)
    if verdict.candidate is None:
        return None
    return Joined(
        flight=near[verdict.candidate.entry_id][0],
        reason=f"the same question is being answered now: {verdict.reason}",
        similarity=verdict.candidate.similarity,
    )

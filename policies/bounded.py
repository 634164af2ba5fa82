"""Cache policy `bounded`: serves from evidence and keeps the share of wrong answers, over all requests, below
a bound. What it promises, and on what grounds: `docs/cache-guarantee.md`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from policies.calibration_curve import CalibrationCurve, Counts
from policies.calibration_drift import CalibrationDrift, DriftState
from policies.contrast import differ_though_long, indistinct
from policies.entry_evidence import EntryEvidence, Outcome
from policies.protocols import Verifier
from policies.risk_budget import RiskBudget
from policies.types import AskedKind, Candidate, Identity, Observation, Verdict, Verification

SPENT = 0.85
"""The part of the allowed error that is spent. The rest is for chance: with it, wrong answers outrun the
allowance by more than 9.5 at any time with probability .05 at most (`docs/cache-guarantee.md`)."""
MOST_ASKED = 2
"""Candidates of one request that the cross-encoder is asked of."""
MAX_RISK = 0.25
"""Nothing is served that is wrong more often than this, though the allowance would pay for it."""
MAX_COMPARED = 0.6
"""Refusals up to this risk are worth comparing: where the verifier is too strict for the traffic, answers
that it would never have served show it."""


class PolicyState(msgspec.Struct, frozen=True, kw_only=True):
    """What was learnt. It belongs to one verifier: to the weights as to the space. `balance`: of the account,
    where it has been closed; 0 while it is in use, lest what was spent since be spent again."""

    verifier: str
    counts: Counts
    conversation_counts: Counts | None = None
    balance: float = 0.0
    drift: DriftState
    evidence: Mapping[int, tuple[Outcome, ...]]


class BoundedPolicy:
    """Serves the candidate with the least risk of being wrong, if the risk budget covers it.

    Risk is an upper bound of P(wrong): what the verifier's probability has meant so far (`counts`, then
    outcomes), what is known of the entry, and a factor while outcomes contradict. `random` gives numbers in
    [0, 1). `explore_share`: of the requests that could be served at a risk above the allowance, how many are
    generated instead to learn from. Not safe under concurrent use.
    """

    def __init__(
        self,
        verifier: Verifier,
        *,
        max_error_rate: float,
        random: Callable[[], float],
        counts: Counts | None = None,
        conversations: Verifier | None = None,
        conversation_counts: Counts | None = None,
        explore_share: float = 0.02,
    ) -> None:
        if not 0 <= max_error_rate < 1:
            raise ValueError(f"max_error_rate {max_error_rate}: expected a share in [0, 1)")
        if not 0 <= explore_share <= 1:
            raise ValueError(f"explore_share {explore_share}: expected a share in [0, 1]")
        self.max_error_rate = max_error_rate
        self._random = random
        self._explore_share = explore_share
        self._questions = _Side(verifier, CalibrationCurve(counts))
        self._conversations = (
            None if conversations is None else _Side(conversations, CalibrationCurve(conversation_counts))
        )
        self._evidence = EntryEvidence()
        self._drift = CalibrationDrift()
        self._budget = RiskBudget(rate=SPENT * max_error_rate, max_risk=MAX_RISK)

    def judge(
        self,
        identity: Identity,
        candidates: Sequence[Candidate],
        now: float,
        *,
        max_error_rate: float | None = None,
        may_explore: bool = True,
        in_flight: bool = False,
    ) -> Verdict:
        """Call it once for each request that may be answered by similarity, with no candidates too: each pays
        for others. `max_error_rate` counts where it is smaller than the policy's: this request is served only
        at a risk no greater, and pays in no more. `in_flight`: a second look of the same request, at answers
        that are still being made: nothing is paid in, and ids name no entries. `may_explore` is false for a
        client that takes a cached answer only.
        """
        allowed, greatest = self.max_error_rate, self._budget.max_risk
        if max_error_rate is not None and max_error_rate < allowed:
            allowed = greatest = max(0.0, max_error_rate)
        if not in_flight:
            self._budget.pay_in(SPENT * allowed)
        side = self._side(identity.kind)
        if side is None:
            return Verdict(candidate=None, reason="there is no verifier of conversations")
        best, refused = self._least_risk(
            side, identity, candidates, enough=SPENT * allowed, known=not in_flight
        )
        if best is None:
            return Verdict(candidate=None, reason=refused or "nothing cached is comparable")
        why_not = self._why_not(best.risk, greatest)
        explored = not why_not and may_explore and not in_flight and self._explores(best.risk)
        if why_not or explored:
            compare = not in_flight and (explored or self._worth_comparing(best.risk))
            why_not = why_not or "could be served: explored, generated to learn"
            return best.verdict(None, why_not, explored=explored, compare=compare)
        served = best.verdict(best.candidate, f"is within {self._budget.threshold:.4f}")
        self._budget.take(best.risk)
        return served

    @property
    def judges_conversations(self) -> bool:
        return self._conversations is not None

    def undecided(self, identity: Identity, candidates: Sequence[Candidate]) -> Mapping[int, tuple[str, str]]:
        """The likeliest of those that the verifier leaves open, unless one needs no more looking at."""
        side = self._side(identity.kind)
        asked = identity.text or ""
        found: list[tuple[float, Candidate]] = []
        for candidate in candidates if side is not None else ():
            assert side is not None
            if _guarded(identity, candidate):
                continue
            said = side.verifier.verify(asked, candidate.text, candidate.similarity)
            if self._shared_risk(side, said) <= SPENT * self.max_error_rate:
                return {}
            if said.open:
                found.append((said.probability, candidate))
        if not found or side is None:
            return {}
        found.sort(key=lambda one: -one[0])
        own = side.verifier.read_together(asked)
        return {
            candidate.entry_id: (own, side.verifier.read_together(candidate.text))
            for _, candidate in found[:MOST_ASKED]
        }

    def explain(self, identity: Identity, candidate: Candidate) -> dict[str, object]:
        """What is thought of one candidate, in words and numbers: neither the state of the budget nor what is
        known of the entry is looked at, and nothing is paid or learnt."""
        side = self._side(identity.kind)
        if side is None:
            return {"serve": False, "reason": "there is no verifier of conversations"}
        if difference := _guarded(identity, candidate):
            return {"serve": False, "reason": difference}
        said = side.verifier.verify(
            identity.text or "", candidate.text, candidate.similarity, candidate.pair_score
        )
        risk = self._shared_risk(side, said)
        own, most = SPENT * self.max_error_rate, self._budget.max_risk
        if risk <= own:
            reason = f"at once: the risk is within {own:.4f}, what each request pays in"
        elif risk <= most:
            reason = "only where other requests have left enough of the error budget"
        else:
            reason = f"never: the risk is above {most:.2f}"
        return {
            "serve": risk <= most,
            "reason": reason,
            "stage": said.stage,
            "probability": said.probability,
            "risk": risk,
            "spoke": list(said.spoke),
        }

    def learn(self, observation: Observation) -> None:
        entry_id, probability, right = observation.entry_id, observation.probability, observation.right
        side = self._side(observation.kind)
        if observation.source != "feedback" and side is not None:
            stated = self._evidence.risk(entry_id, probability, side.curve.risk(probability))
            if stated <= self._budget.max_risk:  # what is never served is no matter of the bound
                self._drift.learn(stated, right=right)
            side.curve.learn(probability, right=right)
        self._evidence.learn(entry_id, probability, right=right)

    def forget(self, entry_ids: Iterable[int]) -> None:
        """Entries that are gone. What is not told is forgotten in time."""
        self._evidence.forget(entry_ids)

    def notice(self) -> str:
        """Empty unless outcomes contradict the calibration; then what was seen and what is done."""
        return self._drift.notice()

    def state(self, *, closing: bool = False) -> PolicyState:
        """`closing`: nothing is judged from now on, and the account goes along."""
        return PolicyState(
            verifier=self._identity,
            balance=self._budget.balance if closing else 0.0,
            counts=self._questions.curve.counts,
            conversation_counts=None if self._conversations is None else self._conversations.curve.counts,
            drift=self._drift.state,
            evidence=self._evidence.state(),
        )

    def restore(self, state: PolicyState) -> None:
        """Raises ValueError for what was learnt of another verifier."""
        if state.verifier != self._identity:
            raise ValueError(f"the state was learnt with {state.verifier!r}, not {self._identity!r}")
        self._questions.curve = CalibrationCurve(state.counts, prior=float("inf"))
        if self._conversations is not None and state.conversation_counts is not None:
            self._conversations.curve = CalibrationCurve(state.conversation_counts, prior=float("inf"))
        self._budget.resume(state.balance)
        self._drift.state = state.drift
        self._evidence.restore(state.evidence)

    def _shared_risk(self, side: _Side, said: Verification) -> float:
        """Of any entry of which the verifier says this."""
        return min(1.0, side.curve.risk(said.probability) * self._drift.factor)

    @property
    def _identity(self) -> str:
        own = self._questions.verifier.identity
        return own if self._conversations is None else f"{own}+{self._conversations.verifier.identity}"

    def _side(self, kind: AskedKind) -> _Side | None:
        return self._questions if kind == "question" else self._conversations

    def _least_risk(
        self,
        side: _Side,
        identity: Identity,
        candidates: Sequence[Candidate],
        *,
        enough: float,
        known: bool,
    ) -> tuple[_Assessed | None, str]:
        """Of the candidates that no guard refuses; and why the first that one does was refused. Looks no
        further than the first whose risk is `enough`: its own request pays for it. `known`: they are entries
        of which something may be known."""
        best: _Assessed | None = None
        refused = ""
        factor = self._drift.factor
        for candidate in candidates:
            if difference := _guarded(identity, candidate):
                refused = refused or f"similarity {candidate.similarity:.3f}, but {difference}"
                continue
            said = side.verifier.verify(
                identity.text or "", candidate.text, candidate.similarity, candidate.pair_score
            )
            risk = side.curve.risk(said.probability)
            if known:
                risk = self._evidence.risk(candidate.entry_id, said.probability, risk)
            risk = min(1.0, risk * factor)
            if best is None or risk < best.risk:
                best = _Assessed(candidate=candidate, said=said, risk=risk)
            if risk <= enough:
                break
        return best, refused

    def _why_not(self, risk: float, greatest: float) -> str:
        """Empty when it may be served."""
        if risk > greatest:
            return f"is above {greatest:.4f}, the greatest for this request"
        if self._budget.covers(risk):
            return ""
        if risk > self._budget.threshold:
            return f"is above {self._budget.threshold:.4f}, the greatest now"
        return f"is more than the error budget's {self._budget.balance:.4f}"

    def _explores(self, risk: float) -> bool:
        return risk > self._budget.rate and self._random() < self._explore_share

    def _worth_comparing(self, risk: float) -> bool:
        """Of what is hopeless a few too, or a calibration that has become too strict could never recover."""
        return risk <= MAX_COMPARED or self._random() < self._explore_share


class _Side:
    """What judges one kind of request: a verifier, and what its probabilities have meant."""

    __slots__ = ("curve", "verifier")

    def __init__(self, verifier: Verifier, curve: CalibrationCurve) -> None:
        self.verifier = verifier
        self.curve = curve


class _Assessed(msgspec.Struct, frozen=True, kw_only=True):
    candidate: Candidate
    said: Verification
    risk: float

    def verdict(
        self, served: Candidate | None, words: str, *, explored: bool = False, compare: bool = False
    ) -> Verdict:
        spoke = f"; {', '.join(self.said.spoke[:2])}" if self.said.spoke else ""
        return Verdict(
            candidate=served,
            reason=f"risk {self.risk:.4f} (verifier {self.said.probability:.3f}) {words}{spoke}",
            confidence=1 - self.risk,
            considered=self.candidate,
            probability=self.said.probability,
            risk=self.risk,
            explored=explored,
            compare=compare,
        )


def _guarded(identity: Identity, candidate: Candidate) -> str:
    """What no verifier is asked about: vectors that tell nothing apart, long texts that differ in a fact. Of
    conversations only a part is embedded, and their verifier looks at the whole."""
    if identity.kind == "conversation":
        return ""
    asked = identity.text or ""
    return indistinct(asked, candidate) or differ_though_long(asked, candidate.text)

"""Whether answers turn out as their risks said, and by how much risks must be raised when they do not."""

from __future__ import annotations

import math

import msgspec

PRIOR = 4.0
"""Wrong answers for which the calibration's word counts: few, so that early outcomes weigh."""
FACTOR = 2.0
"""How much worse than said the test looks for."""
ALARM = math.log(200)
"""While risks are kept, at least 200 outcomes pass before a false alarm, on average (Lorden, 1971)."""


class DriftState(msgspec.Struct, frozen=True, kw_only=True):
    """`wrong` answers seen and how many were `expected`, older ones counting less; `evidence` in nats."""

    wrong: float = 0.0
    expected: float = 0.0
    evidence: float = 0.0
    alarmed: bool = False


class CalibrationDrift:
    """Compares outcomes with the risks that were stated for them.

    `factor` multiplies risks: the upper bound of (wrong answers seen / expected), one deviation up, with a
    prior of PRIOR on 1 (a gamma distribution), never below 1. So it begins at 1.5, strict, and comes down as
    outcomes agree. Beside it runs Page's test (CUSUM, 1954): the likelihood of FACTOR times the risk against
    that of the risk, which may be looked at after every outcome. From its alarm until outcomes have taken
    back all its evidence, `factor` is at least FACTOR. After `memory` outcomes, one counts for 1 / e.
    """

    def __init__(self, *, memory: float = 200.0) -> None:
        self._keep = 1 - 1 / memory
        self.state = DriftState()

    @property
    def factor(self) -> float:
        seen = PRIOR + self.state.wrong
        factor = max(1.0, (seen + math.sqrt(seen)) / (PRIOR + self.state.expected))
        return max(FACTOR, factor) if self.state.alarmed else factor

    def learn(self, risk: float, *, right: bool) -> None:
        """`risk` in (0, 1), as it was before `factor`."""
        worse = min(FACTOR * risk, (1 + risk) / 2)
        told = math.log((1 - worse) / (1 - risk)) if right else math.log(worse / risk)
        evidence = min(ALARM, max(0.0, self.state.evidence + told))
        self.state = DriftState(
            wrong=self.state.wrong * self._keep + (not right),
            expected=self.state.expected * self._keep + risk,
            evidence=evidence,
            alarmed=evidence >= ALARM or (self.state.alarmed and evidence > 0),
        )

    def notice(self) -> str:
        """Empty unless the test has raised its alarm."""
        if not self.state.alarmed:
            return ""
        return (
            f"checked answers were wrong {self.state.wrong:.1f} times where {self.state.expected:.1f} were "
            f"expected: every risk counts {self.factor:.1f} times until they agree again"
        )

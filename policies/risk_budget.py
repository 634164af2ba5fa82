"""How much risk may be taken now, so that what is taken in all stays below what all requests allow."""

from __future__ import annotations

import math

STRETCH = 300.0
"""The account holds what so many requests bring, at most: quiet times cannot be saved up without limit. With
few it is full soon after the start, and then what is risky is let through more unevenly."""


class RiskBudget:
    """An account of expected wrong answers. Each request pays in what it allows, each answer served takes out
    its risk, and the account is never below zero: after any T requests the risks taken sum to at most T ×
    `rate`, whatever their order. In any T requests in a row they sum to at most (T + STRETCH) × `rate`.

    `threshold` is the risk up to which an answer is worth its price. It rises with the account from `rate`
    (which one request pays for) to `max_risk`, by equal factors for equal parts: the rule that, of all
    on-line ones, loses least against hindsight when the order is the worst (Zhou, Chakrabarty, Lukose 2008:
    the on-line knapsack), and under steady traffic it settles where as much is taken out as is paid in.
    """

    __slots__ = ("_balance", "_growth", "capacity", "max_risk", "rate")

    def __init__(self, *, rate: float, max_risk: float) -> None:
        self.rate = rate
        self.max_risk = max(rate, max_risk)
        self.capacity = max(rate * STRETCH, self.max_risk)
        self._growth = self.max_risk / rate if rate > 0 else 1.0
        self._balance = 0.0

    @property
    def balance(self) -> float:
        return self._balance

    @property
    def threshold(self) -> float:
        return self.rate * math.pow(self._growth, self._balance / self.capacity)

    def pay_in(self, allowance: float) -> None:
        """What one request allows: at most `rate`."""
        self._balance = min(self.capacity, self._balance + min(allowance, self.rate))

    def resume(self, balance: float) -> None:
        """Goes on with what an account had that was closed before."""
        self._balance = min(self.capacity, max(0.0, balance))

    def covers(self, risk: float) -> bool:
        return risk <= self._balance and risk <= self.threshold

    def take(self, risk: float) -> None:
        """Ask `covers` before."""
        self._balance -= risk

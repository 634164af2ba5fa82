"""Does the ledger add up? What it says beside what the upstream counted and what the clients saw."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.ledger_client import TENANTS, Seen
from benchmarks.ledger_questions import NO_TOKENS
from gateway.ledger_rows import PICO, Dimension

DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
Figures = dict[str, Any]
Pages = Mapping[str, Figures]
"""The object of `/admin/stats?by=…`, by dimension."""
_MONEY = ("cost_usd", "without_usd", "overhead_usd", "saving_usd")
_TOKENS = {
    "prompt": "prompt_tokens",
    "completion": "completion_tokens",
    "cached": "cached_tokens",
    "written": "cache_write_tokens",
}
_SERVED = ("hit-exact", "hit-semantic", "coalesced")
_FLOAT_USD = 1e-9
"""Prometheus counts money in floats, which round a little at each request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`ledger` is what it says, `wanted` what another counted."""

    name: str
    ledger: Any
    wanted: Any

    @property
    def holds(self) -> bool:
        return bool(self.ledger == self.wanted)

    def told(self) -> Figures:
        return {"name": self.name, "ledger": self.ledger, "wanted": self.wanted, "holds": self.holds}


def checks(pages: Pages, upstream: Figures, seen: Sequence[Seen], metrics: str | None = None) -> list[Check]:
    """All there are; those of the Prometheus page only where there is one."""
    found = [*_dimensions(pages), *_upstream(pages, upstream), *_clients(pages, seen)]
    return found if metrics is None else [*found, *_metrics(pages, metrics)]


def failed(found: Iterable[Check]) -> list[str]:
    """One line for each check that does not hold."""
    return [
        f"{one.name}: the ledger says {one.ledger}, wanted {one.wanted}" for one in found if not one.holds
    ]


def sums(rows: Iterable[Figures]) -> Figures:
    """Of rows, column by column; money as whole pico-USD."""
    total: Counter[str] = Counter()
    for row in rows:
        for name, value in row.items():
            if name in _MONEY:
                total[name] += picousd(value)
            elif isinstance(value, int):
                total[name] += value
    return {name: value for name, value in total.items() if value}


def picousd(usd: float) -> int:
    """Exact below 9,000 USD, where a float has pico-USD to spare."""
    return round(usd * PICO)


def while_running(told: Sequence[Pages]) -> list[Check]:
    """Of all that was told, one after the other: each answer is the sums of one instant."""
    answers = [(by, page) for pages in told for by, page in pages.items()]
    torn = [by for by, page in answers if sums(page["rows"]) != sums([page["total"]])]
    requests = [page["total"]["requests"] for _, page in answers]
    return [
        Check(name="answers whose rows do not sum to their total", ledger=torn, wanted=[]),
        Check(name="requests only ever grow", ledger=requests, wanted=sorted(requests)),
    ]


def cli(pages: Pages, command: Callable[..., str]) -> list[Check]:
    """`command` gives what `lockgate stats` prints with some options."""
    found = []
    for by in ("model", "key"):
        shown = json.loads(command("--by", by, "--json"))
        found.append(Check(name=f"lockgate stats --by {by} --json", ledger=shown, wanted=pages[by]))
        rows = _csv_rows(command("--by", by, "--csv"), by)
        found.append(Check(name=f"lockgate stats --by {by} --csv", ledger=rows, wanted=pages[by]["rows"]))
    return found


def _csv_rows(text: str, by: str) -> list[Figures]:
    """As those of the JSON are."""
    return [
        {
            name: value if name == by else float(value) if "." in value else int(value)
            for name, value in row.items()
        }
        for row in csv.DictReader(io.StringIO(text))
    ]


def _dimensions(pages: Pages) -> Iterable[Check]:
    wanted = sums([pages["day"]["total"]])
    for by in DIMENSIONS:
        yield Check(name=f"rows by {by} sum to the total", ledger=sums(pages[by]["rows"]), wanted=wanted)


def _upstream(pages: Pages, upstream: Figures) -> Iterable[Check]:
    rows = _by_name(pages, "model")
    models = upstream["models"]
    received = sum(count["requests"] for count in models.values())
    yield Check(
        name="calls: the upstream's requests",
        ledger=pages["model"]["total"]["upstream_calls"],
        wanted=received,
    )
    for model, count in sorted(models.items()):
        row = rows.get(model, {})
        yield Check(name=f"calls of {model}", ledger=row.get("upstream_calls", 0), wanted=count["requests"])
        for theirs, ours in _TOKENS.items():
            yield Check(name=f"{ours} of {model}", ledger=row.get(ours, 0), wanted=count[theirs])
        cost = picousd(row.get("cost_usd", 0.0))
        yield Check(name=f"pico-USD of {model}", ledger=cost, wanted=count["picousd"])
    cost = picousd(pages["model"]["total"]["cost_usd"])
    yield Check(name="pico-USD", ledger=cost, wanted=sum(count["picousd"] for count in models.values()))
    yield Check(name="guessed", ledger=pages["model"]["total"]["estimated"], wanted=0)


def _clients(pages: Pages, seen: Sequence[Seen]) -> Iterable[Check]:
    total = pages["day"]["total"]
    yield Check(name="requests", ledger=total["requests"], wanted=len(seen))
    yield Check(name="hits", ledger=total["hits"], wanted=sum(one.cache.startswith("hit") for one in seen))
    errors = sum(one.status >= 400 or one.failed for one in seen)
    yield Check(name="errors", ledger=total["errors"], wanted=errors)
    yield Check(name="cancelled", ledger=total["cancelled"], wanted=sum(one.left for one in seen))
    without = sum(one.without_picousd for one in seen)
    yield Check(name="pico-USD without", ledger=picousd(total["without_usd"]), wanted=without)
    served = [one.tokens for one in seen if one.cache in _SERVED]
    saved = sum(served, NO_TOKENS)
    yield Check(name="saved tokens", ledger=total["saved_tokens"], wanted=saved.prompt + saved.completion)
    for by, names in _names(seen).items():
        rows = {name: row["requests"] for name, row in _by_name(pages, by).items()}
        yield Check(name=f"requests by {by}", ledger=rows, wanted=dict(names))
    caches = {name: row["requests"] for name, row in _by_name(pages, "cache").items()}
    told = Counter(one.cache for one in seen)
    for name in _SERVED:
        yield Check(name=f"requests {name}", ledger=caches.get(name, 0), wanted=told[name])


def _names(seen: Sequence[Seen]) -> dict[str, Counter[str]]:
    keys = [one.ask.key if one.ask.key in TENANTS else "" for one in seen]
    return {
        "key": Counter(keys),
        "tenant": Counter(TENANTS.get(key, "") for key in keys),
        "api": Counter(one.ask.api for one in seen),
    }


def _metrics(pages: Pages, page: str) -> Iterable[Check]:
    counted = _counters(page)
    total = pages["model"]["total"]
    requests = counted["lockgate_requests"]
    yield Check(name="requests, Prometheus", ledger=total["requests"], wanted=sum(requests.values()))
    left = sum(value for labels, value in requests.items() if dict(labels)["status"] == "499")
    yield Check(name="cancelled, Prometheus", ledger=total["cancelled"], wanted=left)
    hits = sum(value for labels, value in requests.items() if dict(labels)["cache"].startswith("hit"))
    yield Check(name="hits, Prometheus", ledger=total["hits"], wanted=hits)
    rows = _by_name(pages, "model")
    for labels, value in sorted(counted["lockgate_tokens"].items()):
        named = dict(labels)
        ours = {"input": "prompt_tokens", "output": "completion_tokens"}[named["direction"]]
        name = f"{ours} of {named['model']}, Prometheus"
        yield Check(name=name, ledger=rows[named["model"]][ours], wanted=value)
    for labels, value in sorted(counted["lockgate_cost_usd"].items()):
        model = dict(labels)["model"]
        cost = rows[model]["cost_usd"]
        near = cost if abs(cost - value) < _FLOAT_USD else value
        yield Check(name=f"cost of {model}, Prometheus", ledger=cost, wanted=near)


def _counters(page: str) -> dict[str, Counter[tuple[tuple[str, str], ...]]]:
    found: dict[str, Counter[tuple[tuple[str, str], ...]]] = {}
    for family in text_string_to_metric_families(page):
        counter = found.setdefault(family.name, Counter())
        for sample in family.samples:
            counter[tuple(sorted(sample.labels.items()))] += sample.value  # type: ignore[assignment]
    return found


def _by_name(pages: Pages, by: str) -> dict[str, Figures]:
    return {row[by]: row for row in pages[by]["rows"]}

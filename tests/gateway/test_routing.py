"""Which tier, by which rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from gateway.catalog import Catalog, Model, Route
from gateway.errors import RequestError
from gateway.routing import asked_text, choose_model, why_not
from gateway.trace import Trace
from policies.calibration import ThresholdRouter
from policies.types import Query, Request, Tier
from tests.gateways import FakeBackend

BACKEND = FakeBackend()
SMALL = Model(name="s", upstream_name="up-s", backend=BACKEND, context_tokens=400, capabilities=frozenset())
LARGE = Model(name="l", upstream_name="up-l", backend=BACKEND)
ROUTE = Route(
    name="auto", small=SMALL, large=LARGE, threshold=ThresholdRouter(threshold=0.5, strong_share=0.3)
)
NO_VECTOR = Query(text="x", vector=None, space=None)


class FakeScore:
    def __init__(self, value: float) -> None:
        self.value = value

    def score(self, query: Query) -> float:
        return self.value


def chosen(score: float, pin: Tier | None = None, route: Route = ROUTE, **fields: Any) -> Trace:
    body = {"model": "auto", "messages": [{"role": "user", "content": "x"}], **fields}
    request = Request(api="chat", model="auto", body=body, tenant="t", route_pin=pin)
    trace = Trace(request_id="r")
    choose_model(replace(route, policy=FakeScore(score)), request, NO_VECTOR, trace)
    return trace


def test_the_score_decides_at_the_threshold() -> None:
    assert [chosen(score).route for score in (0.49, 0.5, 0.51)] == ["small", "large", "large"]
    assert "0.49" in chosen(0.49).route_reason
    assert chosen(0.49).score == 0.49
    assert chosen(0.51).model == "up-l"


def test_rules_come_before_the_score() -> None:
    assert chosen(0.9, pin="small").route == "small"
    tools = chosen(0.1, tools=[{"type": "function"}])
    assert (tools.route, tools.route_reason) == ("large", "the small model lacks tools")
    long = chosen(0.1, max_tokens=500)
    assert long.route == "large"
    assert "400 tokens of context" in long.route_reason


def test_a_rule_that_neither_model_meets_decides_nothing() -> None:
    both_small = Route(name="auto", small=SMALL, large=SMALL, threshold=ROUTE.threshold)
    assert chosen(0.1, route=both_small, tools=[{"type": "function"}]).route == "small"


def test_what_is_known_against_a_model() -> None:
    assert why_not(LARGE, {"tools": [1], "max_tokens": 10**6}) == ""
    assert why_not(SMALL, {"response_format": {"type": "json_object"}}) == "lacks json"


def test_the_text_scored_is_what_the_user_asked_last() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "long harness text"},
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "answer"},
        {"role": "user", "content": [{"type": "text", "text": "second"}, {"type": "image_url"}]},
        {"role": "tool", "content": "output"},
    ]
    assert asked_text(messages) == "second"
    assert asked_text(messages[:1]) == ""
    assert asked_text([{"role": "user", "content": None}]) == ""


def test_the_catalog_finds_routes_before_models_and_names_what_it_knows() -> None:
    catalog = Catalog({"auto": ROUTE}, {"s": SMALL, "l": LARGE}, None)
    assert catalog.find("auto") is ROUTE
    assert catalog.find("s") is SMALL
    try:
        catalog.find("x")
    except RequestError as error:
        told = str(error)
    assert "auto, s, l" in told


def test_cost() -> None:
    priced = Model(
        name="p", upstream_name="p", backend=BACKEND, input_usd_per_mtok=2.0, output_usd_per_mtok=10.0
    )
    assert priced.cost_usd(500_000, 100_000) == 2.0

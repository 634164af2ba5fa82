"""Which tier, by which rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from msgspec import structs

from gateway.catalog import Catalog, Model, Route
from gateway.errors import RequestError
from gateway.routing import asked_text, choose_models, needs_score, why_not
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
    choose_models(replace(route, policy=FakeScore(score)), request, body, NO_VECTOR, trace)
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


def test_fallbacks_come_after_the_choice_and_must_be_able() -> None:
    other = Model(name="o", upstream_name="up-o", backend=BACKEND)
    route = replace(ROUTE, policy=FakeScore(0.9), fallbacks=(LARGE, SMALL, other))
    body = {"model": "auto", "messages": [], "tools": [{"type": "function"}]}
    request = Request(api="chat", model="auto", body=body, tenant="t")
    models = choose_models(route, request, body, NO_VECTOR, Trace(request_id="r"))
    assert [model.name for model in models] == ["l", "o"]


def test_a_score_is_needed_where_a_policy_decides() -> None:
    request = Request(api="chat", model="auto", body={}, tenant="t")
    scored = replace(ROUTE, policy=FakeScore(0.9))
    assert needs_score(scored, request)
    assert not needs_score(scored, structs.replace(request, route_pin="small"))
    assert not needs_score(ROUTE, request)
    assert not needs_score(SMALL, request)

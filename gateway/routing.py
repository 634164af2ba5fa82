"""Small or large: hard rules first, then the difficulty score against the route's threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gateway.catalog import Model, Route
from gateway.trace import Trace
from policies.requirements import estimated_tokens, needed_capabilities
from policies.types import Query, Request, RouteChoice

DIRECT = "direct"
"""The route shown for a model that was asked for by its own name."""


def choose_model(target: Route | Model, request: Request, query: Query, trace: Trace) -> Model:
    """The model that answers; the choice and its reason go into the trace."""
    if isinstance(target, Model):
        trace.route, trace.route_reason = DIRECT, "the model was asked for by name"
        model = target
    else:
        choice = _tier(target, request, query)
        trace.route, trace.route_reason, trace.score = choice.tier, choice.reason, choice.score
        model = target.model(choice.tier)
    trace.model, trace.backend = model.upstream_name, model.backend.name
    return model


def _tier(route: Route, request: Request, query: Query) -> RouteChoice:
    if request.route_pin is not None:
        return RouteChoice(tier=request.route_pin, reason="the client asked for it (x-lockgate-route)")
    lacking = why_not(route.small, request.body)
    if lacking and not why_not(route.large, request.body):
        return RouteChoice(tier="large", reason=f"the small model {lacking}")
    if route.policy is None or route.threshold is None:
        return RouteChoice(tier=route.fixed_tier, reason=f"policy always-{route.fixed_tier}")
    choice = route.threshold.choose(route.policy.score(query))
    if query.vector is None:
        return replace(choice, reason=f"{choice.reason}, from the wording alone")
    return choice


def why_not(model: Model, body: Mapping[str, Any]) -> str:
    """Why a model cannot serve a request, "" when nothing is known against it."""
    if model.capabilities is not None:
        missing = sorted(needed_capabilities(body) - model.capabilities)
        if missing:
            return f"lacks {', '.join(missing)}"
    if model.context_tokens is not None:
        tokens = estimated_tokens(body)
        if tokens > model.context_tokens:
            return f"has {model.context_tokens} tokens of context, about {tokens} are needed"
    return ""


def asked_text(messages: Sequence[Mapping[str, Any]]) -> str:
    """What the user asked last: the text of the last user message; system prompts and tool output do not
    count. "" when there is none."""
    for message in reversed(messages):
        if message.get("role") != "user":
            continue
        content = message.get("content")
        if isinstance(content, str):
            return content
        if isinstance(content, list):
            texts = (part.get("text") for part in content if part.get("type") == "text")
            return "\n".join(text for text in texts if isinstance(text, str))
        return ""
    return ""

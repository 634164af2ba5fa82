"""Small or large: hard rules first, then the difficulty score against the route's threshold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from gateway.catalog import Model, Route
from gateway.trace import Trace
from policies.requirements import estimated_tokens, needed_capabilities
from policies.types import Query, Request, RouteChoice

DIRECT = "direct"
"""The route shown for a model that was asked for by its own name."""


def choose_models(
    target: Route | Model, request: Request, chat: Mapping[str, Any], query: Query, trace: Trace
) -> list[Model]:
    """The model that answers, and those that answer when it fails, in order; the choice and its reason go
    into the trace. `chat` asks the same as the request in the form of a chat completion."""
    if isinstance(target, Model):
        trace.route, trace.route_reason = DIRECT, "the model was asked for by name"
        models = [target]
    else:
        choice = _tier(target, request, chat, query)
        trace.route, trace.route_reason, trace.score = choice.tier, choice.reason, choice.score
        first = target.model(choice.tier)
        others = [model for model in target.fallbacks if model is not first and not why_not(model, chat)]
        models = [first, *others]
    trace.model, trace.backend = models[0].upstream_name, models[0].backend.name
    return models


def needs_score(target: Route | Model, request: Request) -> bool:
    """Whether a routing policy will look at the question."""
    return isinstance(target, Route) and target.policy is not None and request.route_pin is None


def _tier(route: Route, request: Request, chat: Mapping[str, Any], query: Query) -> RouteChoice:
    if request.route_pin is not None:
        return RouteChoice(tier=request.route_pin, reason="the client asked for it (x-lockgate-route)")
    lacking = why_not(route.small, chat)
    if lacking and not why_not(route.large, chat):
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
    return next(asked_texts(messages), "")


def asked_texts(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The texts of the user's messages, the last one first; "" for one without text."""
    for message in reversed(messages):
        if message.get("role") != "user":
            continue
        content = message.get("content")
        if isinstance(content, list):
            texts = (part.get("text") for part in content if part.get("type") == "text")
            yield "\n".join(text for text in texts if isinstance(text, str))
        else:
            yield content if isinstance(content, str) else ""

"""The model names clients may ask for, and what stands behind each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backends.batched.models import name_of
from backends.protocols import Backend
from gateway.errors import RequestError
from gateway.settings import BatchedBackendSettings, Settings
from policies.calibration import ThresholdRouter
from policies.difficulty import DifficultyPolicy, DifficultyWeights
from policies.protocols import RoutingPolicy
from policies.requirements import Capability
from policies.types import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One model at one backend. `upstream_name` is what the backend calls it. `context_tokens` and
    `capabilities` are None when nothing is known: then the model is taken to be able."""

    name: str
    upstream_name: str
    backend: Backend
    input_usd_per_mtok: float = 0.0
    output_usd_per_mtok: float = 0.0
    context_tokens: int | None = None
    capabilities: frozenset[Capability] | None = None

    def cost_usd(self, prompt_tokens: int, completion_tokens: int) -> float:
        return (
            prompt_tokens * self.input_usd_per_mtok + completion_tokens * self.output_usd_per_mtok
        ) / 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A name behind which a small or a large model answers: by the score of `policy` against `threshold`
    where there are both, else always `fixed_tier`."""

    name: str
    small: Model
    large: Model
    policy: RoutingPolicy | None = None
    threshold: ThresholdRouter | None = None
    fixed_tier: Tier = "large"

    def model(self, tier: Tier) -> Model:
        return self.small if tier == "small" else self.large


class Catalog:
    """Routes first, then models, then the backend for unknown names."""

    def __init__(
        self, routes: Mapping[str, Route], models: Mapping[str, Model], unknown: Backend | None
    ) -> None:
        self.routes = dict(routes)
        self.models = dict(models)
        self._unknown = unknown

    def find(self, name: str) -> Route | Model:
        """Raises RequestError (404) for a name nobody knows."""
        found = self.routes.get(name) or self.models.get(name)
        if found is not None:
            return found
        if self._unknown is not None:
            return Model(name=name, upstream_name=name, backend=self._unknown)
        known = ", ".join(self.names())
        raise RequestError(
            f"The model '{name}' does not exist. Known here: {known}.",
            status=404,
            code="model_not_found",
            param="model",
        )

    def names(self) -> list[str]:
        return [*self.routes, *(name for name in self.models if name not in self.routes)]


def catalog_of(
    settings: Settings, backends: Mapping[str, Backend], weights: Mapping[str, DifficultyWeights]
) -> Catalog:
    """The catalog that the settings describe. `weights` are those of the routes of kind difficulty, by the
    route's name."""
    models = {name: _model(name, settings, backends) for name in settings.models}
    routes = {}
    for name, route in settings.routes.items():
        trained = weights.get(name)
        share = route.policy.strong_share
        routes[name] = Route(
            name=name,
            small=models[route.small],
            large=models[route.large],
            policy=DifficultyPolicy(trained) if trained else None,
            threshold=ThresholdRouter.for_strong_share(trained.calibration, share) if trained else None,
            fixed_tier="small" if route.policy.kind == "always-small" else "large",
        )
    unknown = settings.server.unknown_models
    return Catalog(routes, models, backends[unknown.backend] if unknown else None)


def _model(name: str, settings: Settings, backends: Mapping[str, Backend]) -> Model:
    wanted = settings.models[name]
    behind = settings.backends[wanted.backend]
    context_tokens, capabilities, upstream_name = wanted.context_tokens, wanted.capabilities, wanted.name
    if isinstance(behind, BatchedBackendSettings):
        # What the built-in engine can do is known here; of others, only what the config says.
        context_tokens = context_tokens or behind.context_tokens
        capabilities = capabilities or []
        upstream_name = upstream_name or name_of(behind.model)
    return Model(
        name=name,
        upstream_name=upstream_name or name,
        backend=backends[wanted.backend],
        input_usd_per_mtok=wanted.input_usd_per_mtok,
        output_usd_per_mtok=wanted.output_usd_per_mtok,
        context_tokens=context_tokens,
        capabilities=None if capabilities is None else frozenset(capabilities),
    )

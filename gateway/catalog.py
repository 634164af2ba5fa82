"""The model names clients may ask for, and what stands behind each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from backends.batched.models import name_of
from backends.protocols import Backend
from gateway.errors import RequestError
from gateway.prices import UNKNOWN, Price, PriceList, provider_of
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
    price: Price = UNKNOWN
    context_tokens: int | None = None
    capabilities: frozenset[Capability] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A name behind which a small or a large model answers: by the score of `policy` against `threshold`
    where there are both, else always `fixed_tier`. `fallbacks` answer, in order, when that one fails."""

    name: str
    small: Model
    large: Model
    policy: RoutingPolicy | None = None
    threshold: ThresholdRouter | None = None
    fixed_tier: Tier = "large"
    fallbacks: tuple[Model, ...] = ()

    def model(self, tier: Tier) -> Model:
        return self.small if tier == "small" else self.large


class Catalog:
    """Routes first, then models, then the backend for unknown names."""

    def __init__(
        self,
        routes: Mapping[str, Route],
        models: Mapping[str, Model],
        unknown: Backend | None,
        price_of_unknown: Callable[[str], Price] = lambda _: UNKNOWN,
    ) -> None:
        self.routes = dict(routes)
        self.models = dict(models)
        self.unknown = unknown
        self._price_of_unknown = price_of_unknown

    def find(self, name: str) -> Route | Model:
        """Raises RequestError (404) for a name nobody knows."""
        found = self.routes.get(name) or self.models.get(name)
        if found is not None:
            return found
        if self.unknown is not None:
            price = self._price_of_unknown(name)
            return Model(name=name, upstream_name=name, backend=self.unknown, price=price)
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
    settings: Settings,
    backends: Mapping[str, Backend],
    weights: Mapping[str, DifficultyWeights],
    prices: PriceList | None = None,
) -> Catalog:
    """The catalog that the settings describe. `weights` are those of the routes of kind difficulty, by the
    route's name."""
    prices = prices or PriceList()
    models = {name: _model(name, settings, backends, prices) for name in settings.models}
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
            fallbacks=tuple(models[other] for other in route.policy.fallbacks),
        )
    unknown = settings.server.unknown_models
    if unknown is None:
        return Catalog(routes, models, None)
    provider = provider_of(settings.backends[unknown.backend])
    return Catalog(routes, models, backends[unknown.backend], lambda name: prices.price(name, provider))


def _model(name: str, settings: Settings, backends: Mapping[str, Backend], prices: PriceList) -> Model:
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
        price=prices.price_of(wanted, upstream_name or name, behind),
        context_tokens=context_tokens,
        capabilities=None if capabilities is None else frozenset(capabilities),
    )

"""config.toml: its keys, defaults and checks. Unknown keys are errors; units are in the names."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import InitErrorDetails, PydanticCustomError

from policies.requirements import Capability

Share = Annotated[float, Field(ge=0.0, le=1.0)]
Cosine = Annotated[float, Field(ge=-1.0, le=1.0)]


class Section(BaseModel):
    """A TOML table. Frozen, and strict: "8080" is not a port and true is not 1."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, protected_namespaces=())


class UnknownModels(Section):
    """Where names that no route and no model has go, as they are."""

    backend: str


class Server(Section):
    host: str = Field(default="127.0.0.1", min_length=1)
    port: int = Field(default=8080, ge=0, le=65535)
    workers: int = Field(default=1, ge=1, le=1)
    max_body_bytes: int = Field(default=20_000_000, ge=1_000)
    admin_token: str | None = None
    forward_headers: list[str] = []
    unknown_models: UnknownModels | None = None


class AuthKey(Section):
    """A key that lets a client in. A limit that is absent is none; the tenant is then the key's name."""

    sha256: str = Field(pattern=r"^[0-9a-fA-F]{64}$")
    tenant: str | None = Field(default=None, min_length=1)
    requests_per_minute: int | None = Field(default=None, ge=1)
    tokens_per_minute: int | None = Field(default=None, ge=1)
    budget_usd_per_month: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)


class Auth(Section):
    mode: Literal["passthrough", "keys", "open"] = "passthrough"
    keys: dict[Annotated[str, Field(min_length=1)], AuthKey] = Field(default={}, validate_default=True)

    @field_validator("keys")
    @classmethod
    def _keys_are_there_and_differ(cls, keys: dict[str, AuthKey], info: ValidationInfo) -> dict[str, AuthKey]:
        if not keys and info.data.get("mode") == "keys":
            raise PydanticCustomError(
                "no_keys",
                'at least one [auth.keys.NAME] table when auth.mode = "keys" (`lockgate keys new NAME`)',
            )
        first: dict[str, str] = {}
        twice = []
        for name, key in keys.items():
            other = first.setdefault(key.sha256.lower(), name)
            if other != name:
                same = PydanticCustomError("same_key", f"a key of its own: auth.keys.{other} has the same")
                twice.append(InitErrorDetails(type=same, loc=(name, "sha256"), input=None))
        if twice:
            raise ValidationError.from_exception_data("keys", twice)
        return keys


class Embeddings(Section):
    kind: Literal["onnx", "sentence-transformers"] = "onnx"
    model: str = Field(default="default", min_length=1)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    threads: int = Field(default=1, ge=1, le=256)
    deadline_ms: int = Field(default=250, ge=1)
    usd_per_cpu_hour: float = Field(default=0.05, ge=0.0)


class CachePolicySettings(Section):
    """`verifier` names a file of weights, or those that are shipped; `judge` a model that says whether two
    answers agree where nothing cheaper can tell."""

    kind: Literal["exact", "static", "bounded"] = "bounded"
    max_error_rate: float = Field(default=0.01, ge=0.0, lt=1.0)
    min_similarity: Cosine | Literal["auto"] = "auto"
    verify_share: Share = 0.02
    explore_share: Share = 0.02
    verifier: str = Field(default="default", min_length=1)
    judge: str | None = Field(default=None, min_length=1)
    mode: Literal["on", "shadow", "off"] = "on"


class Volatile(Section):
    """Questions whose right answer changes with time. `rules` names a file, or those that are shipped."""

    action: Literal["short-ttl", "bypass", "ignore"] = "short-ttl"
    rules: str = Field(default="default", min_length=1)


class Cache(Section):
    enabled: bool = True
    store: Literal["memory", "sqlite"] = "sqlite"
    path: str = Field(default="~/.local/share/lockgate/cache.db", min_length=1)
    ttl_s: float = Field(default=86_400, gt=0)
    max_entries: int = Field(default=1_000_000, ge=1)
    max_bytes: int = Field(default=4_000_000_000, ge=1_000_000)
    share: Literal["tenant", "everyone"] = "tenant"
    max_temperature: float = Field(default=1.0, ge=0.0)
    personal_data: Literal["exact", "no-store", "off"] = "exact"
    coalesce_wait_s: float = Field(default=30.0, gt=0.0)
    replay_tokens_per_s: float | None = Field(default=None, gt=0.0)
    volatile: Volatile = Volatile()
    policy: CachePolicySettings = CachePolicySettings()


class Ledger(Section):
    enabled: bool = True
    path: str = Field(default="~/.local/share/lockgate/ledger.db", min_length=1)
    retention_days: int = Field(default=400, ge=1, le=36_500)


class Model(Section):
    backend: str
    name: str | None = None
    context_tokens: int | None = Field(default=None, ge=1)
    input_usd_per_mtok: float | None = Field(default=None, ge=0.0)
    output_usd_per_mtok: float | None = Field(default=None, ge=0.0)
    cached_input_usd_per_mtok: float | None = Field(default=None, ge=0.0)
    cache_write_usd_per_mtok: float | None = Field(default=None, ge=0.0)
    capabilities: list[Capability] | None = None


class RoutePolicy(Section):
    kind: Literal["difficulty", "always-small", "always-large"] = "difficulty"
    strong_share: Share = 0.3
    weights: str = Field(default="default", min_length=1)
    fallbacks: list[str] = []


class Route(Section):
    small: str
    large: str
    policy: RoutePolicy = RoutePolicy()


class BatchedBackendSettings(Section):
    kind: Literal["batched"]
    engine: Literal["auto", "llamacpp", "transformers"] = "auto"
    model: str = Field(default="default", min_length=1)
    max_batch: int = Field(default=8, ge=1, le=1024)
    context_tokens: int = Field(default=2048, ge=64)
    threads: int | None = Field(default=None, ge=1, le=1024)
    max_queue: int = Field(default=1024, ge=1)


class HttpBackendSettings(Section):
    """What backends over HTTP share. Absent timeouts: only `timeout_s` bounds the wait."""

    base_url: str
    api_key: str | None = Field(default=None, min_length=1)
    timeout_s: float = Field(default=600.0, gt=0.0)
    connect_timeout_s: float = Field(default=10.0, gt=0.0)
    first_token_timeout_s: float | None = Field(default=None, gt=0.0)
    idle_timeout_s: float | None = Field(default=None, gt=0.0)
    retries: int = Field(default=2, ge=0, le=10)
    hedge_after_ms: int | None = Field(default=None, ge=1)
    breaker_failure_share: Share = 0.5
    breaker_cooldown_s: float = Field(default=10.0, gt=0.0)


class OpenAIBackendSettings(HttpBackendSettings):
    kind: Literal["openai"]
    base_url: str = Field(default="https://api.openai.com/v1", pattern=r"^https?://[^\s/]+")
    apis: list[Literal["chat", "completions", "responses", "embeddings"]] | Literal["auto"] = "auto"


class AnthropicBackendSettings(HttpBackendSettings):
    kind: Literal["anthropic"]
    base_url: str = Field(default="https://api.anthropic.com", pattern=r"^https?://[^\s/]+")


BackendSettings = Annotated[
    BatchedBackendSettings | OpenAIBackendSettings | AnthropicBackendSettings, Field(discriminator="kind")
]
BACKEND_KINDS = ("batched", "openai", "anthropic")


class Settings(Section):
    """The whole file. Names that refer to other tables are checked here too."""

    server: Server = Server()
    auth: Auth = Auth()
    embeddings: Embeddings = Embeddings()
    cache: Cache = Cache()
    ledger: Ledger = Ledger()
    models: dict[str, Model] = {}
    routes: dict[str, Route] = {}
    backends: dict[str, BackendSettings] = {}

    def broken_references(self) -> list[tuple[str, str, str]]:
        """(key path, value, what was expected) for every name that no table has."""
        found = []
        for name, model in self.models.items():
            if model.backend not in self.backends:
                found.append((f"models.{name}.backend", model.backend, _one_of("backends", self.backends)))
            elif model.name is None and self.backends[model.backend].kind != "batched":
                found.append((f"models.{name}.name", "", f"the model's name at {model.backend}"))
        for name, route in self.routes.items():
            for tier in ("small", "large"):
                target = getattr(route, tier)
                if target not in self.models:
                    found.append((f"routes.{name}.{tier}", target, _one_of("models", self.models)))
            for i, target in enumerate(route.policy.fallbacks):
                if target not in self.models:
                    key = f"routes.{name}.policy.fallbacks[{i}]"
                    found.append((key, target, _one_of("models", self.models)))
            if name in self.models:
                found.append((f"routes.{name}", name, "a name that no [models.…] table has"))
        policy = self.cache.policy
        if "min_similarity" in policy.model_fields_set and "kind" not in policy.model_fields_set:
            why = '"static", which alone serves by min_similarity, or "bounded"'
            found.append(("cache.policy.kind", "", why))
        judge = policy.judge
        if judge is not None and judge not in self.models:
            found.append(("cache.policy.judge", judge, _one_of("models", self.models)))
        unknown = self.server.unknown_models
        if unknown and unknown.backend not in self.backends:
            found.append(
                ("server.unknown_models.backend", unknown.backend, _one_of("backends", self.backends))
            )
        return found


def _one_of(table: str, names: Iterable[str]) -> str:
    known = ", ".join(sorted(names)) or "none is defined"
    return f"the name of a [{table}.…] table ({known})"

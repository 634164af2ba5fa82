"""Which part the settings ask for, by its concrete class."""

from __future__ import annotations

from pathlib import Path

from backends.anthropic import AnthropicBackend
from backends.batched.backend import BatchedBackend
from backends.batched.config import BatchedConfig
from backends.batched.observer import BatchObserver
from backends.http_backend import HttpBackend, Timeouts
from backends.openai import OpenAIBackend
from embeddings.engine_thread import EngineThread
from embeddings.protocols import AnswerStore, Embedder, VectorIndex
from embeddings.semantic_cache import LocalSemanticCache
from gateway.attempts import Resilience
from gateway.router_weights import read_weights, shipped
from gateway.settings import (
    AnthropicBackendSettings,
    BatchedBackendSettings,
    HttpBackendSettings,
    OpenAIBackendSettings,
    Settings,
)
from gateway.settings import Cache as CacheSettings
from gateway.volatile_rules import load_rules
from gateway.wire.chat_dialect import ChatDialect
from gateway.wire.chat_to_messages import ChatToMessages
from gateway.wire.completions import CompletionsDialect
from gateway.wire.completions_to_chat import CompletionsToChat
from gateway.wire.dialects import Dialects
from gateway.wire.embeddings import EmbeddingsDialect
from gateway.wire.messages import MessagesDialect
from gateway.wire.messages_to_chat import MessagesToChat
from gateway.wire.responses import ResponsesDialect
from gateway.wire.responses_to_chat import ResponsesToChat
from policies.breaker import CircuitBreaker
from policies.difficulty import DifficultyWeights
from policies.sharing import SharingRules


def dialects() -> Dialects:
    """Every API there is, and every way between two."""
    return Dialects(
        [ChatDialect(), CompletionsDialect(), ResponsesDialect(), EmbeddingsDialect(), MessagesDialect()],
        [ChatToMessages(), MessagesToChat(), ResponsesToChat(), CompletionsToChat()],
    )


def http_backend(name: str, settings: OpenAIBackendSettings | AnthropicBackendSettings) -> HttpBackend:
    timeouts = Timeouts(
        total_s=settings.timeout_s,
        connect_s=settings.connect_timeout_s,
        first_token_s=settings.first_token_timeout_s,
        idle_s=settings.idle_timeout_s,
    )
    if isinstance(settings, AnthropicBackendSettings):
        return AnthropicBackend(name, settings.base_url, settings.api_key, timeouts=timeouts)
    apis = None if settings.apis == "auto" else frozenset(settings.apis)
    return OpenAIBackend(name, settings.base_url, settings.api_key, timeouts=timeouts, apis=apis)


def batched_backend(name: str, settings: BatchedBackendSettings, observer: BatchObserver) -> BatchedBackend:
    config = BatchedConfig(
        engine=settings.engine,
        model=settings.model,
        max_batch=settings.max_batch,
        context_tokens=settings.context_tokens,
        threads=settings.threads,
        max_queue=settings.max_queue,
    )
    return BatchedBackend(name, config, observer=observer)


def resilience(settings: HttpBackendSettings | BatchedBackendSettings) -> Resilience:
    if isinstance(settings, BatchedBackendSettings):
        return Resilience(retries=0, breaker=CircuitBreaker(failure_share=0.0))
    breaker = CircuitBreaker(
        failure_share=settings.breaker_failure_share, cooldown_s=settings.breaker_cooldown_s
    )
    hedge_ms = settings.hedge_after_ms
    return Resilience(
        retries=settings.retries,
        total_s=settings.timeout_s,
        hedge_after_s=None if hedge_ms is None else hedge_ms / 1000,
        breaker=breaker,
    )


def embedding_names(model: str) -> list[str]:
    """What clients may call the gateway's own embedding model."""
    known = {"default": "multilingual-e5-small", "minilm": "all-MiniLM-L6-v2"}
    return ["lockgate-embedding", known.get(model) or Path(model).name]


def semantic(settings: Settings) -> bool:
    cache = settings.cache
    return cache.enabled and cache.policy.kind != "exact" and cache.policy.mode != "off"


def answer_store(settings: CacheSettings) -> AnswerStore:
    """Blocks. Raises StoreError."""
    if settings.enabled and settings.store == "sqlite":
        return sqlite(settings)
    from embeddings.memory_store import MemoryStore

    return MemoryStore(settings.max_entries, settings.max_bytes)


def semantic_cache(store: AnswerStore, engine: EngineThread | None, settings: Settings) -> LocalSemanticCache:
    """Blocks. With an index only where similarity serves."""
    index: VectorIndex | None = None
    if engine is not None and semantic(settings):
        from embeddings.faiss_index import FaissIndex

        index = FaissIndex(engine.dimension)
    snapshot = snapshot_path(settings.cache)
    return LocalSemanticCache(store, index, engine if index is not None else None, snapshot=snapshot)


def sqlite(settings: CacheSettings) -> AnswerStore:
    from embeddings.sqlite_store import SqliteStore

    return SqliteStore.open(Path(settings.path).expanduser(), settings.max_entries, settings.max_bytes)


def snapshot_path(settings: CacheSettings) -> Path | None:
    """Where a large index is saved: beside the file that it is derived from."""
    return Path(f"{Path(settings.path).expanduser()}.index") if settings.store == "sqlite" else None


def sharing_rules(settings: CacheSettings) -> SharingRules:
    """Raises ConfigError."""
    own = settings.volatile.rules
    return SharingRules(
        rules=load_rules(None if own == "default" else Path(own).expanduser()),
        share=settings.share,
        volatile=settings.volatile.action,
        personal_data=settings.personal_data,
    )


def embedder(settings: Settings) -> Embedder:
    wanted = settings.embeddings
    if wanted.kind == "sentence-transformers":
        from embeddings.sentence_transformers_embedder import SentenceTransformersEmbedder

        return SentenceTransformersEmbedder.open(wanted.model, wanted.device)
    from embeddings.onnx_embedder import OnnxEmbedder

    # The shipped verifier was calibrated on a CPU's vectors, and those of a GPU are others.
    shipped = wanted.device == "auto" and uses_shipped_verifier(settings)
    return OnnxEmbedder.open(wanted.model, "cpu" if shipped else wanted.device, wanted.threads)


def uses_shipped_verifier(settings: Settings) -> bool:
    policy = settings.cache.policy
    return semantic(settings) and policy.kind == "bounded" and policy.verifier == "default"


def policy_state_path(settings: CacheSettings) -> Path | None:
    """Where what a policy has learnt is kept: beside the entries that it is about."""
    return Path(f"{Path(settings.path).expanduser()}.policy") if settings.store == "sqlite" else None


def difficulty_weights(settings: Settings, space: str | None) -> dict[str, DifficultyWeights]:
    """By route. Raises WeightsError."""
    found = {}
    for name, route in settings.routes.items():
        if route.policy.kind == "difficulty":
            own = route.policy.weights
            path = shipped(space) if own == "default" else Path(own).expanduser()
            found[name] = read_weights(path).weights
    return found

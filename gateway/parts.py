"""Which part the settings ask for, by its concrete class."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

from backends.anthropic import AnthropicBackend
from backends.http_backend import HttpBackend, Timeouts
from backends.openai import OpenAIBackend
from embeddings.pair_thread import PairScorer
from embeddings.protocols import AnswerStore, Embedder, EmbedderError
from gateway.attempts import Resilience
from gateway.config_problems import ConfigError, Problem
from gateway.conversation_weights import read_conversations_file, shipped_conversations
from gateway.router_weights import read_weights, shipped
from gateway.settings import (
    AnthropicBackendSettings,
    BatchedBackendSettings,
    HttpBackendSettings,
    OpenAIBackendSettings,
    Settings,
)
from gateway.settings import Cache as CacheSettings
from gateway.similarity import min_similarity
from gateway.verifier_weights import read_verifier
from gateway.verifier_weights import shipped as shipped_verifier
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
from policies.bounded import BoundedPolicy
from policies.breaker import CircuitBreaker
from policies.calibration_curve import Counts
from policies.cascade_verifier import CascadeVerifier
from policies.conversation_verifier import ConversationVerifier
from policies.difficulty import DifficultyWeights
from policies.exact import ExactPolicy
from policies.protocols import CachePolicy
from policies.sharing import SharingRules
from policies.static import StaticPolicy
from policies.tree_verifier import TreeVerifier, VerifierWeightsError


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
    shipped = wanted.device == "auto" and compares_conversations(settings)
    return OnnxEmbedder.open(wanted.model, "cpu" if shipped else wanted.device, wanted.threads)


class WantedEncoder(msgspec.Struct, frozen=True, kw_only=True):
    """The cross-encoder that a verifier was fitted to: where it lies, and which it is."""

    folder: Path
    identity: str


def cache_policy(settings: Settings, space: str | None) -> tuple[CachePolicy, WantedEncoder | None]:
    """The policy, and the cross-encoder that it would ask. Raises ConfigError."""
    wanted = settings.cache.policy
    if space is None or not semantic(settings):
        return ExactPolicy(), None
    if wanted.kind == "static":
        return StaticPolicy(min_similarity(wanted.min_similarity, space)), None
    own = wanted.verifier
    try:
        file = read_verifier(shipped_verifier() if own == "default" else Path(own).expanduser())
        verifier = file.verifier.of_space(space)
    except VerifierWeightsError as error:
        if own == "default":  # no bound can be kept: said by `why_exact`
            return ExactPolicy(), None
        expected = f"weights for the embedder in use: {error}"
        problem = Problem(key="cache.policy.verifier", value=f'"{own}"', expected=expected)
        raise ConfigError([problem], "configuration") from None
    talks = _conversations(verifier, space) if compares_conversations(settings) else None
    policy = BoundedPolicy(
        verifier,
        conversations=None if talks is None else talks[0],
        conversation_counts=None if talks is None else talks[1],
        max_error_rate=wanted.max_error_rate,
        random=random.random,
        counts=file.counts,
        explore_share=wanted.explore_share,
    )
    if file.encoder is None or file.blend is None:
        return policy, None
    return policy, WantedEncoder(folder=file.encoder, identity=file.blend.encoder)


def why_exact(settings: Settings, space: str | None) -> str:
    """Why similarity serves nobody although policy bounded was asked for; "" where it does."""
    if space is None or not compares_conversations(settings):
        return ""
    if read_verifier(shipped_verifier()).first.space == space:
        return ""
    return (
        f"only equal requests are served: the shipped verifier is not for {space}; "
        'train one (lockgate verifier train), or take kind = "static"'
    )


def compares_conversations(settings: Settings) -> bool:
    """Whether the turns before a last message are compared too, not only equal: with the shipped verifier,
    whose cross-encoder the weights for conversations were made with."""
    policy = settings.cache.policy
    return semantic(settings) and policy.kind == "bounded" and policy.verifier == "default"


def _conversations(
    verifier: TreeVerifier | CascadeVerifier, space: str
) -> tuple[ConversationVerifier, Counts] | None:
    file = read_conversations_file(shipped_conversations())
    if not isinstance(verifier, CascadeVerifier) or file.weights.encoder != verifier.encoder:
        return None
    return ConversationVerifier(file.weights, space), file.counts


def pair_encoder(wanted: WantedEncoder, threads: int) -> PairScorer:
    """On a CPU: what was calibrated on its scores does not hold for those of a GPU. Raises EmbedderError, for
    another one than the verifier's too."""
    from embeddings.pair_encoder import PairEncoder

    found = PairEncoder.open(wanted.folder, "cpu", threads)
    if found.identity != wanted.identity:
        found.close()
        raise EmbedderError(
            f"{wanted.folder} holds the cross-encoder {found.identity}, but the verifier was fitted to "
            f"{wanted.identity}: train the verifier again (lockgate verifier train), or put that one there"
        )
    return found


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

"""The cache policy that the settings ask for, and what it needs beside itself."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

from embeddings.pair_thread import PairScorer
from embeddings.protocols import EmbedderError
from gateway.config_problems import ConfigError, Problem
from gateway.conversation_weights import ConversationFile, read_conversations_file, shipped_conversations
from gateway.parts import semantic, uses_shipped_verifier
from gateway.settings import Settings
from gateway.similarity import min_similarity
from gateway.verifier_weights import VerifierFile, read_verifier, shipped
from policies.bounded import BoundedPolicy
from policies.conversation_verifier import ConversationVerifier
from policies.exact import ExactPolicy
from policies.protocols import CachePolicy
from policies.static import StaticPolicy
from policies.tree_verifier import VerifierWeightsError


class WantedEncoder(msgspec.Struct, frozen=True, kw_only=True):
    """The cross-encoder that a verifier was fitted to: where it lies, and which it is."""

    folder: Path
    identity: str

    def opened(self, threads: int) -> PairScorer:
        """On a CPU: what was calibrated on its scores does not hold for those of a GPU. Raises EmbedderError,
        for another one than the verifier's too."""
        from embeddings.pair_encoder import PairEncoder

        found = PairEncoder.open(self.folder, "cpu", threads)
        if found.identity != self.identity:
            found.close()
            raise EmbedderError(
                f"{self.folder} holds the cross-encoder {found.identity}, but the verifier was fitted to "
                f"{self.identity}: train the verifier again (lockgate verifier train), or put that one there"
            )
        return found


class ChosenPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`encoder`: the cross-encoder that the policy would ask. `notice`: what the start should say of it."""

    policy: CachePolicy
    encoder: WantedEncoder | None = None
    notice: str = ""

    @property
    def learns(self) -> BoundedPolicy | None:
        """The policy, if outcomes change it."""
        return self.policy if isinstance(self.policy, BoundedPolicy) else None

    @property
    def compares_conversations(self) -> bool:
        """Whether the turns before a last message are compared, and need not be equal."""
        return self.learns is not None and self.learns.judges_conversations


def chosen_policy(settings: Settings, space: str | None) -> ChosenPolicy:
    """For vectors in `space`; None: there is no embedder. Raises ConfigError."""
    wanted = settings.cache.policy
    if space is None or not semantic(settings):
        return ChosenPolicy(policy=ExactPolicy())
    if wanted.kind == "static":
        return ChosenPolicy(policy=StaticPolicy(min_similarity(wanted.min_similarity, space)))
    default = uses_shipped_verifier(settings)
    try:
        file = read_verifier(shipped() if default else Path(wanted.verifier).expanduser())
        if default and file.first.space != space:
            notice = (
                f"only equal requests are served: the shipped verifier is not for {space}; "
                'train one (lockgate verifier train), or take kind = "static"'
            )
            return ChosenPolicy(policy=ExactPolicy(), notice=notice)
        return _bounded(settings, file, space, conversations=default)
    except VerifierWeightsError as error:
        expected = f"weights for the embedder in use: {error}"
        problem = Problem(key="cache.policy.verifier", value=f'"{wanted.verifier}"', expected=expected)
        raise ConfigError([problem], "configuration") from None


def _bounded(settings: Settings, file: VerifierFile, space: str, *, conversations: bool) -> ChosenPolicy:
    """Raises VerifierWeightsError."""
    verifier = file.verifier.of_space(space)
    wanted = settings.cache.policy
    talks: ConversationFile | None = None
    if conversations and file.blend is not None:
        talks = read_conversations_file(shipped_conversations())
        if talks.weights.encoder != file.blend.encoder:
            raise VerifierWeightsError("the weights for conversations are for another cross-encoder")
    policy = BoundedPolicy(
        verifier,
        conversations=None if talks is None else ConversationVerifier(talks.weights, space),
        conversation_counts=None if talks is None else talks.counts,
        max_error_rate=wanted.max_error_rate,
        random=random.random,
        counts=file.counts,
        explore_share=wanted.explore_share,
    )
    if file.encoder is None or file.blend is None:
        return ChosenPolicy(policy=policy)
    encoder = WantedEncoder(folder=file.encoder, identity=file.blend.encoder)
    return ChosenPolicy(policy=policy, encoder=encoder)

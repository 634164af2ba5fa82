"""The values that flow along the request path. Frozen, slotted, keyword-only."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

Api = Literal["chat", "completions", "responses", "messages", "embeddings"]
"""OpenAI's chat completions, completions, responses and embeddings; Anthropic's messages."""
CacheStatus = Literal["hit-exact", "hit-semantic", "miss", "bypass", "coalesced"]
Tier = Literal["small", "large"]
AskedKind = Literal["question", "conversation"]
"""A single question, or one that comes at the end of a conversation."""


class CacheDirectives(msgspec.Struct, frozen=True, kw_only=True):
    """What the client's `Cache-Control` request header asks for (RFC 9111, section 5.2.1)."""

    no_cache: bool = False
    no_store: bool = False
    only_if_cached: bool = False
    max_age_s: float | None = None


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of one generation. `prompt_tokens` is the whole prompt; of it `cached_tokens` were read from
    the provider's prompt cache and `cache_write_tokens` written to it, each at a price of its own."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    estimated: bool = False


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One client request, parsed and validated but with every field the client sent kept in `body`.

    `tenant` is opaque: whoever may share answers has the same one. `route_pin` is the client's wish
    for a tier (`x-lockgate-route`). `variant` holds the headers that pick another behaviour of the API,
    by lower-case names. `tags` and `ttl_s` are the client's wishes for the entry that the answer is kept as:
    what it can be found by, and for how long (0: not at all; None: as configured). `max_error_rate`: of the
    answers served by similarity, how many may be wrong for this client, where that is less than configured.
    """

    api: Api
    model: str
    body: Mapping[str, Any]
    tenant: str
    stream: bool = False
    include_usage: bool = False
    route_pin: Tier | None = None
    cache: CacheDirectives = msgspec.field(default_factory=CacheDirectives)
    variant: Mapping[str, str] = msgspec.field(default_factory=dict)
    tags: tuple[str, ...] = ()
    ttl_s: float | None = None
    max_error_rate: float | None = None


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """Who may share an answer.

    `exact_key` (32 bytes) covers the whole canonical request. `partition` (16 bytes) covers all that
    must be equal before similarity counts. `text` is what is embedded; None when the request is not
    safe to answer by similarity, and then `unsafe_reason` says why. `request` is the canonical request,
    what `exact_key` is the hash of. `owner` is whom the answer is shared with ("": everyone), the API and the
    model asked for: openly, so that no chance equality of hashes can hide a difference. `kind` says what
    `text` is; of a conversation only a part, `searched_by`, is embedded.
    """

    exact_key: bytes
    partition: bytes
    text: str | None
    unsafe_reason: str = ""
    request: bytes = b""
    owner: tuple[str, str, str] = ("", "", "")
    kind: AskedKind = "question"
    searched_by: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A finished answer in the form of its API, kept whole so that fields unknown to us survive.

    `model` is the upstream's own name. Times are Unix seconds.
    """

    body: Mapping[str, Any]
    model: str
    created_at: float
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float = 0.0


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A stored entry near the question. `similarity` is cosine in [-1, 1], higher is closer. `pair_score`:
    what a cross-encoder that reads both questions says, in log-odds; None where it was not asked."""

    entry_id: int
    similarity: float
    text: str
    created_at: float
    pair_score: float | None = None


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """What a verifier says of two questions: the probability that one answer serves both, and what spoke for
    it or against it, the strongest first, in words fit for a header. `open`: a `pair_score` may say more.
    `stage` names who spoke last."""

    probability: float
    spoke: tuple[str, ...] = ()
    open: bool = False
    stage: Literal["features", "cross-encoder"] = "features"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What a cache policy says of the candidates, and what is to be learnt from it.

    `candidate` is the one to serve, None when none may be. `confidence` estimates the probability that its
    answer serves the question too; None when the policy has no estimate. `considered` is the candidate with
    the least risk, served or not, `probability` what the verifier said of it and `risk` what came of that.
    `explored`: it could have been served. `compare`: whoever generates an answer now should say by `learn`
    whether the considered one's would have done.
    """

    candidate: Candidate | None
    reason: str
    confidence: float | None = None
    considered: Candidate | None = None
    probability: float | None = None
    risk: float | None = None
    explored: bool = False
    compare: bool = False

    def keeps(self, *, right: bool) -> bool:
        """Whether the answer generated instead needs a vector of its own, once it is known if the considered
        one was `right`. If not, it is found by its exact key, and by similarity the considered one is."""
        return not (right and self.explored)


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """How entry `entry_id` did for a question of which the verifier had said `probability`; 1 where that is
    not known. `verification` (a served answer, drawn by chance, and one generated anew were compared) and
    `exploration` (`Verdict.compare`) teach what is true of all entries. `feedback` teaches of this entry
    only: users report what is wrong, and seldom what is right.
    """

    entry_id: int
    probability: float = 1.0
    right: bool
    source: Literal["feedback", "verification", "exploration"]
    kind: AskedKind = "question"


class ServeCached(msgspec.Struct, frozen=True, kw_only=True):
    """Answer from entry `entry_id`."""

    kind: Literal["hit-exact", "hit-semantic"]
    entry_id: int
    similarity: float
    reason: str
    confidence: float | None = None


class Generate(msgspec.Struct, frozen=True, kw_only=True):
    """Ask a model. `ttl_s`: how long the answer may be kept; 0 is not at all."""

    cache: Literal["miss", "bypass"]
    reason: str
    ttl_s: float


class Refuse(msgspec.Struct, frozen=True, kw_only=True):
    """Answer with an error: the client allowed a cached answer only and there is none."""

    reason: str


Decision = ServeCached | Generate | Refuse


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What a routing policy looks at: what the user asked, and its embedding.

    `vector` is a unit-norm float32 array of shape (D,), or None when there is none (cache off, embedder
    late). `space` names the embedding space the vector lives in.
    """

    text: str
    vector: Any | None
    space: str | None


class RouteChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which tier answers. `score` is the expected gain of the large model mapped to [0, 1]; None when a
    rule decided without scoring."""

    tier: Tier
    reason: str
    score: float | None = None

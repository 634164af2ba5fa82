"""What the gateway answers, as types: the source of the response schemas of `/openapi.json`.

Only what every answer has is required. Further fields of an upstream's own come through, so none is refused.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Object = dict[str, Any]


class OpenAIErrorDetail(Struct):
    message: str
    type: str | None = None
    param: str | None = None
    code: str | int | None = None


class OpenAIError(Struct):
    """`param` names the field that is wrong. An upstream's own body is passed on as it is."""

    error: OpenAIErrorDetail


class AnthropicErrorDetail(Struct):
    type: str
    message: str


class AnthropicError(Struct):
    """An upstream's own body is passed on as it is."""

    type: Literal["error"]
    error: AnthropicErrorDetail
    request_id: str | None = None


class Usage(Struct):
    """In tokens. `prompt_tokens` is the whole prompt, what came from the provider's prompt cache included."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int | None = None
    prompt_tokens_details: Object | None = None
    completion_tokens_details: Object | None = None


class ChatAnswerMessage(Struct):
    role: str
    content: str | None = None
    refusal: str | None = None
    tool_calls: list[Object] | None = None


class ChatChoice(Struct):
    index: int
    message: ChatAnswerMessage
    finish_reason: str | None = None
    logprobs: Object | None = None


class ChatCompletion(Struct):
    id: str
    object: Literal["chat.completion"]
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage | None = None


class ChatChunkChoice(Struct):
    index: int
    delta: Object
    finish_reason: str | None = None
    logprobs: Object | None = None


class ChatCompletionChunk(Struct):
    """The last one before `[DONE]` has no choices and the usage, where `stream_options` asks for it."""

    id: str
    object: Literal["chat.completion.chunk"]
    created: int
    model: str
    choices: list[ChatChunkChoice]
    usage: Usage | None = None


class CompletionChoice(Struct):
    index: int
    text: str
    finish_reason: str | None = None
    logprobs: Object | None = None


class Completion(Struct):
    """A whole answer, and also each event of a stream."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | None = None


class ResponseUsage(Struct):
    """In tokens."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: Object | None = None
    output_tokens_details: Object | None = None


class ResponseItem(Struct):
    type: str


class Response(Struct):
    id: str
    object: Literal["response"]
    created_at: float
    status: str
    model: str
    output: list[ResponseItem]
    error: Object | None = None
    incomplete_details: Object | None = None
    usage: ResponseUsage | None = None


class ResponseEvent(Struct):
    type: str
    sequence_number: int


class Embedding(Struct):
    """The vector as numbers, or as base64 of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingList(Struct):
    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage | None = None


class MessageUsage(Struct):
    """In tokens."""

    input_tokens: int
    output_tokens: int
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class ContentBlock(Struct):
    type: str


class Message(Struct):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ContentBlock]
    usage: MessageUsage
    stop_reason: str | None = None
    stop_sequence: str | None = None


class MessageEvent(Struct):
    type: str


class TokenCount(Struct):
    """An estimate where the header x-lockgate-estimated says so."""

    input_tokens: int


class Model(Struct):
    id: str
    object: Literal["model"]
    created: int | None = None
    owned_by: str | None = None


class ModelList(Struct):
    object: Literal["list"]
    data: list[Model]


class AnthropicModel(Struct):
    id: str
    type: Literal["model"]
    display_name: str
    created_at: str


class AnthropicModelList(Struct):
    data: list[AnthropicModel]
    has_more: bool
    first_id: str | None
    last_id: str | None


class Live(Struct):
    status: Literal["ok"]


class BackendHealth(Struct):
    ready: bool
    detail: str


class Ready(Struct):
    """`degraded`: some backend is down, or requests go on without what `degraded` names. `unavailable`: no
    backend is ready."""

    status: Literal["ok", "degraded", "unavailable"]
    degraded: dict[str, str]
    backends: dict[str, BackendHealth]


class Stats(Struct):
    """Counts since the start. `hit_ratio` is hits over the requests that a cache could have answered."""

    uptime_s: float
    requests: int
    by_status: dict[str, int]
    by_cache: dict[str, int]
    by_route: dict[str, int]
    hit_ratio: float
    entries: int
    cache_bytes: int
    tokens: dict[str, dict[str, int]]
    saved_tokens: int
    cost_usd: float
    saved_usd: float
    faults: dict[str, int]
    degraded: dict[str, str]


class LedgerFigures(Struct):
    """`without_usd`: the same requests without Lockgate. `saving_usd` is that less the cost and less the
    overhead, which is what embedding and verifying cost."""

    requests: int
    hits: int
    errors: int
    cancelled: int
    generations: int
    upstream_calls: int
    estimated: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    saved_tokens: int
    embed_seconds: float
    verify_seconds: float
    cost_usd: float
    without_usd: float
    overhead_usd: float
    saving_usd: float


class LedgerStats(Struct):
    """A row for each value of the dimension `by`, under whose name the row has that value."""

    by: str
    since: str | None
    until: str | None
    rows: list[LedgerFigures]
    total: LedgerFigures


ANSWERS = (
    OpenAIError,
    AnthropicError,
    ChatCompletion,
    ChatCompletionChunk,
    Completion,
    Response,
    ResponseEvent,
    EmbeddingList,
    Message,
    MessageEvent,
    TokenCount,
    ModelList,
    AnthropicModelList,
    Live,
    Ready,
    Stats,
    LedgerStats,
)

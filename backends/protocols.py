"""Plug-points of generation. Structural: an implementation need not import these names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import msgspec

from policies.types import Api


class CallReport(msgspec.Struct, kw_only=True):
    """What a backend tells of a call beside its answer. `requests`: how many were sent upstream for it.
    `headers`: those of the answer that a client may see, by lower-case names. `room`: whether the client's
    request may still cost another one upstream."""

    requests: int = 0
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    room: Callable[[], bool] = lambda: True

    def another(self) -> bool:
        """Counts one more request than the first, where there is room for it."""
        if not self.room():
            return False
        self.requests += 1
        return True


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request to a backend, in one of its `apis`; its `model` is already the upstream's name.

    `body["stream"]` decides the form of the answer. `credential` is the client's own (the value of an
    Authorization header), for backends that have no key of their own. `headers` are few and safe to
    forward, by lower-case names. `deadline`, on the event loop's clock, bounds the call as a whole.
    """

    api: Api = "chat"
    body: Mapping[str, Any]
    credential: str | None = None
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    deadline: float | None = None
    report: CallReport = msgspec.field(default_factory=CallReport)

    @property
    def stream(self) -> bool:
        return bool(self.body.get("stream"))


class Chunk(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an answer as it goes over the wire. `events` are the JSON objects in it, in order.

    `whole`: `data` is the JSON of a whole answer, its one event; a call without `stream` gives exactly
    that, and a server may answer a streamed one so. Else `data` is one or more complete server-sent
    events, byte for byte as the upstream sent them; comments have no event, and what marks the end
    (`[DONE]`) is left out. `tells_usage`: an event of an OpenAI stream has a `usage` key, which backends ask
    for whether the client does or not; one that is not null comes in a chunk of its own. The end of the
    iterator is the clean end of the answer; every other end raises a BackendError.
    """

    data: bytes
    events: Sequence[Mapping[str, Any]]
    whole: bool = False
    tells_usage: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """`kv_usage` is the used share of the KV cache in [0, 1]; None where the engine does not tell.
    `connections`: open ones to the server, idle ones included; 0 where there is no server."""

    queued: int
    running: int
    kv_usage: float | None = None
    connections: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """`detail` is fit for a person: what is wrong, or the model served."""

    ready: bool
    detail: str


class Backend(Protocol):
    """Something that generates answers."""

    @property
    def name(self) -> str: ...

    @property
    def apis(self) -> frozenset[Api]:
        """The APIs it speaks itself. May shrink when a server turns out not to have one (ApiMissing)."""
        ...

    def stream(self, call: Call) -> AsyncIterator[Chunk]:
        """One attempt. Leaving the iterator (aclose, cancellation) cancels the work upstream. Raises the
        errors of `backends.errors`."""
        ...

    async def load(self) -> Load: ...

    async def health(self) -> Health: ...

    async def aclose(self) -> None: ...


class RawAnswer(Protocol):
    """An upstream's answer passed through as it is: iterating gives the bytes of its body."""

    @property
    def status(self) -> int: ...

    @property
    def headers(self) -> Sequence[tuple[str, str]]:
        """Those a client may see, in order; names may repeat."""
        ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    def close(self) -> None:
        """Frees the connection; aborts it unless the body was read to its end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RawCall:
    """A request of an API that the gateway does not read. `path` is what follows `/v1/`, as the client
    wrote it; `query` without its `?`; `body` None when there is none."""

    method: str
    path: str
    query: str
    headers: Sequence[tuple[str, str]]
    body: AsyncIterator[bytes] | bytes | None
    credential: str | None = None


class RawBackend(Protocol):
    """A backend that also passes requests through byte for byte."""

    async def forward(self, call: RawCall) -> RawAnswer:
        """Raises UpstreamUnreachable, UpstreamTimeout, UpstreamInvalid, InvalidCall."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """None means the model's own default. `temperature` 0 is greedy. `stop` ends the text before it."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One generation for an engine. `messages` are {"role", "content"} with plain text content."""

    id: int
    messages: Sequence[Mapping[str, str]]
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What an engine says of a job: more text, and with the last piece the finish reason and counts."""

    job_id: int
    text: str = ""
    finish_reason: Literal["stop", "length"] | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A job that ended without an answer. `invalid`: the request's fault (`param` names the field);
    `engine`: the engine's."""

    job_id: int
    kind: Literal["invalid", "engine"]
    message: str
    param: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineInfo:
    """`model` is a name for people; `context_tokens` bounds prompt plus completion of one job."""

    engine: str
    model: str
    context_tokens: int
    max_batch: int


class Engine(Protocol):
    """A continuous-batching engine inside the worker process."""

    def start(self) -> EngineInfo:
        """Load the model; blocks. Raises backends.errors.EngineUnavailable."""
        ...

    def submit(self, job: Job, emit: Callable[[Piece | Failure], None]) -> None:
        """Returns at once. `emit` is called from the engine's threads, in order for one job, and lastly
        with a Piece that has a finish reason or with a Failure, unless the job was cancelled."""
        ...

    def cancel(self, job_id: int) -> None:
        """Free what the job uses within one step. Unknown ids are ignored."""
        ...

    def load(self) -> Load: ...

    def close(self) -> None: ...

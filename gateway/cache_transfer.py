"""The file that a cache moves in: JSON lines, first a header, then one entry a line.

docs/moving-a-cache.md has its form for users.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from typing import Annotated, Any, BinaryIO, Literal, get_args

import msgspec
import numpy as np
import orjson

from embeddings.entry_record import INT64_MAX, to_vectors
from embeddings.protocols import Entry, FloatVector, StoreError
from gateway.errors import RequestError
from gateway.wire.validation import checked, field_error
from policies.types import Answer, Api, Request, Tier

_Name = Annotated[str, msgspec.Meta(min_length=1)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=INT64_MAX)]
# Bounded: the infinities are no times and no prices.
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
_Usd = Annotated[float, msgspec.Meta(ge=0, le=1e15)]


class TransferError(Exception):
    """What should be taken in cannot be. The message says where it is and what was expected."""


class Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """An entry on its way into a store. `where` names its place in the file that it comes from.

    `text` is what may be compared; None: it is to be served by exact match only. `vector` is the text's
    (float32 (D,), unit norm, of `space`), None when there is none yet.
    """

    where: str
    request: Request
    tags: tuple[str, ...] = ()
    text: str | None
    space: str | None = None
    vector: FloatVector | None = None
    answer: Answer
    expires_at: float


class Left(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that is not taken in. `reason` says why not, alike for all that have the same."""

    reason: str


class Header(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The first line. `entries` is how many lines follow. `space` is the one that the newest vector is of.
    `key_check` tells whether two stores have the same secret; `secret` is that itself, in hex."""

    lockgate_cache: Literal[1]
    exported_at: _Seconds
    entries: _Count
    space: str | None
    key_check: str
    secret: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")] | None = None


class _StoredAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    body: dict[str, Any]
    model: str
    created_at: _Seconds
    prompt_tokens: _Count
    completion_tokens: _Count
    cost_usd: _Usd


class _Line(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`request` is the canonical request, as `policies.identity.canonical` writes it."""

    request: tuple[Api, str, _Name, Tier | None, dict[str, str], dict[str, Any]]
    tenant: _Name
    api: Api
    model: _Name
    tags: tuple[_Name, ...]
    text: str | None
    space: str | None
    vector: str | None
    answer: _StoredAnswer
    expires_at: _Seconds


_CHOICES = {"api": get_args(Api), "request": (*get_args(Api), *get_args(Tier))}


def key_check(secret: bytes) -> str:
    """Equal for equal secrets, and of no help in finding one."""
    return hashlib.blake2b(digest_size=8, key=secret, person=b"lockgate-check").hexdigest()


def line_of_header(header: Header) -> bytes:
    return msgspec.json.encode(header) + b"\n"


def line_of_entry(entry: Entry, *, exact_only: bool) -> bytes:
    """`exact_only`: it is no longer to be found by similarity."""
    answer = entry.answer
    vector = None
    if entry.vector is not None:
        vector = base64.b64encode(entry.vector.astype("<f2").tobytes()).decode("ascii")
    fields = {
        "request": orjson.Fragment(entry.request),
        "tenant": entry.tenant,
        "api": entry.api,
        "model": entry.model,
        "tags": entry.tags,
        "text": None if exact_only else entry.text,
        "space": None if vector is None else entry.space,
        "vector": vector,
        "answer": {
            # written by itself: inside of this line it might be nested deeper than orjson writes
            "body": orjson.Fragment(orjson.dumps(answer.body)),
            "model": answer.model,
            "created_at": answer.created_at,
            "prompt_tokens": answer.prompt_tokens,
            "completion_tokens": answer.completion_tokens,
            "cost_usd": answer.cost_usd,
        },
        "expires_at": entry.expires_at,
    }
    return orjson.dumps(fields, option=orjson.OPT_APPEND_NEWLINE)


class LockgateFile:
    """What `lockgate cache export` wrote, read once and in order. `name` is what its errors call it."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        """Reads the header. Raises TransferError."""
        self._stream = stream
        self._name = name
        line = stream.readline()
        if not line:
            raise TransferError(f"{name}: expected what `lockgate cache export` writes, and it is empty")
        value = self._parsed(line, 1)
        if not isinstance(value, dict) or "lockgate_cache" not in value:
            raise self._error(1, 'expected the header of `lockgate cache export`, {"lockgate_cache": 1, ...}')
        if value["lockgate_cache"] != 1:
            got = orjson.dumps(value["lockgate_cache"]).decode()
            raise self._error(1, f"lockgate_cache: expected 1, got {got}: upgrade lockgate")
        try:
            self.header = checked(value, Header)
        except RequestError as error:
            raise self._error(1, str(error)) from None
        secret = self.header.secret
        if secret is not None and key_check(bytes.fromhex(secret)) != self.header.key_check:
            raise self._error(1, "secret: expected the one that key_check is of")

    @property
    def total(self) -> int:
        return self.header.entries

    def entries(self) -> Iterator[Incoming]:
        """Raises TransferError, at the first line that is wrong, or when lines are missing."""
        number = 1
        for number, line in enumerate(self._stream, 2):
            value = self._parsed(line, number)
            try:
                yield _incoming(checked(value, _Line, choices=_CHOICES), self._where(number))
            except RequestError as error:
                raise self._error(number, str(error)) from None
        if number - 1 != self.total:
            raise TransferError(
                f"{self._name}: expected {self.total} entries after the header, as it says, and there are "
                f"{number - 1}: export again, or correct `entries` in the header"
            )

    def _parsed(self, line: bytes, number: int) -> Any:
        try:
            return orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if not line.endswith(b"\n"):
                raise self._error(number, "the last line is cut off: export again") from None
            raise self._error(number, f"expected a JSON object ({error.msg})") from None

    def _where(self, number: int) -> str:
        return f"{self._name}, line {number}"

    def _error(self, number: int, what: str) -> TransferError:
        return TransferError(f"{self._where(number)}: {what}")


def _incoming(line: _Line, where: str) -> Incoming:
    """Raises RequestError that names the field."""
    api, tenant, model, route_pin, variant, body = line.request
    if api != line.api or model != line.model:
        raise field_error("request", f"expected one of {line.api} for {line.model}, as the line says")
    if tenant not in ("", line.tenant):  # "": shared by everyone
        raise field_error("request", "expected one of the line's tenant")
    vector = None if line.vector is None else _vector(line.vector)
    if vector is not None and (line.text is None or line.space is None):
        raise field_error("vector", "expected its text and its space beside it")
    answer = line.answer
    return Incoming(
        where=where,
        request=Request(
            api=api, model=model, body=body, tenant=line.tenant, route_pin=route_pin, variant=variant
        ),
        tags=line.tags,
        text=line.text,
        space=line.space,
        vector=vector,
        answer=Answer(
            body=answer.body,
            model=answer.model,
            created_at=answer.created_at,
            prompt_tokens=answer.prompt_tokens,
            completion_tokens=answer.completion_tokens,
            cost_usd=answer.cost_usd,
        ),
        expires_at=line.expires_at,
    )


def _vector(encoded: str) -> FloatVector:
    try:
        [vector] = to_vectors([base64.b64decode(encoded, validate=True)])
    except (ValueError, StoreError):
        raise field_error("vector", "expected base64 of little-endian float16 of unit norm") from None
    return np.ascontiguousarray(vector)

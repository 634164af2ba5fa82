"""An entry as stores keep it: plain columns, the body as JSON bytes, the vector as float16."""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from embeddings.protocols import Entry, EntryFilter, FloatMatrix, FloatVector, StoreError
from policies.types import Answer, Api

INT64_MAX = 2**63 - 1
NORM_TOLERANCE = 1e-3
STORED_NORM_TOLERANCE = 2e-3  # and float16 adds its rounding
CLOCK_TOLERANCE_S = 60.0
"""An answer made so much later than now is not served: the machine's clock has been set back since, and
nobody knows how old the answer is. It is kept, for the clock may be set right again."""
ENTRY_OVERHEAD_BYTES = 1024
"""What an entry takes beside what is counted: its keys, names and numbers, its places in the indexes, and
what its pages leave empty. In the SQLite file 550 to 1,230 bytes were measured, for answers of 100 to 8,000
characters and vectors of 384 dimensions."""


class EntryRecord(NamedTuple):
    """The columns of an entry but its id and its use, in the stores' order. A tuple because it is bound to
    SQL as it is. `model` was asked for, `answered_by` answered. `tags` is a JSON array. `vector` is
    little-endian float16, half of float32: its rounding moves a cosine by 1e-4; without it there is no
    `space`."""

    exact_key: bytes
    partition: bytes
    tenant: str
    api: Api
    model: str
    answered_by: str
    tags: str
    space: str | None
    created_at: float
    expires_at: float
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float
    stored_bytes: int
    vector: bytes | None
    text: str | None
    request: bytes
    body: bytes


def is_served(record: EntryRecord, now: float) -> bool:
    """Neither expired nor from the future. `sqlite_filters.SERVED` says the same in SQL."""
    return now < record.expires_at and record.created_at <= now + CLOCK_TOLERANCE_S


def fits(record: EntryRecord, which: EntryFilter) -> bool:
    return (
        which.tenant in (None, record.tenant)
        and which.api in (None, record.api)
        and which.model in (None, record.model, record.answered_by)
        and (which.tag is None or which.tag in to_tags(record.tags))
        and (which.text is None or contains(record.text, which.text.casefold()))
    )


def contains(text: str | None, folded: str) -> bool:
    """Whether `text` holds what was case-folded."""
    return text is not None and folded in text.casefold()


def to_record(entry: Entry) -> EntryRecord:
    """Raises StoreError for an entry that no store could give back as it was."""
    answer = entry.answer
    try:
        body = orjson.dumps(answer.body)
        tags = orjson.dumps(entry.tags).decode()
        for name in (entry.tenant, entry.model, entry.space, answer.model):
            if name is not None:
                name.encode("utf-8")
        text_bytes = 0 if entry.text is None else len(entry.text.encode("utf-8"))
    except (orjson.JSONEncodeError, UnicodeEncodeError) as error:
        raise StoreError(f"the entry cannot be stored: {error}") from error
    if entry.vector is not None and (entry.text is None or entry.space is None):
        raise StoreError("the entry cannot be stored: a vector needs its text and its space")
    if entry.vector is not None and not _is_unit(entry.vector):
        raise StoreError("the entry cannot be stored: its vector must be float32 (D,) of unit norm")
    if not 0 <= answer.prompt_tokens <= INT64_MAX or not 0 <= answer.completion_tokens <= INT64_MAX:
        raise StoreError("the entry cannot be stored: its token counts are out of range")
    if not all(map(math.isfinite, (answer.created_at, entry.expires_at, answer.cost_usd))):
        raise StoreError("the entry cannot be stored: its times and cost must be finite")
    vector = None if entry.vector is None else entry.vector.astype("<f2").tobytes()
    counted = len(body) + len(entry.request) + text_bytes + len(vector or b"") + len(tags)
    return EntryRecord(
        exact_key=entry.exact_key,
        partition=entry.partition,
        tenant=entry.tenant,
        api=entry.api,
        model=entry.model,
        answered_by=answer.model,
        tags=tags,
        space=None if entry.vector is None else entry.space,
        created_at=answer.created_at,
        expires_at=entry.expires_at,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        cost_usd=answer.cost_usd,
        stored_bytes=ENTRY_OVERHEAD_BYTES + counted,
        vector=vector,
        text=entry.text,
        request=entry.request,
        body=body,
    )


def to_entry(entry_id: int, record: EntryRecord) -> Entry:
    """Raises StoreError when the record is damaged."""
    try:
        body = orjson.loads(record.body)
        tags = to_tags(record.tags)
    except orjson.JSONDecodeError as error:
        raise StoreError(f"entry {entry_id} is damaged: {error}") from error
    return Entry(
        id=entry_id,
        exact_key=record.exact_key,
        partition=record.partition,
        tenant=record.tenant,
        api=record.api,
        model=record.model,
        tags=tags,
        text=record.text,
        space=record.space,
        vector=None if record.vector is None else _to_vector(record.vector),
        answer=Answer(
            body=body,
            model=record.answered_by,
            created_at=record.created_at,
            prompt_tokens=record.prompt_tokens,
            completion_tokens=record.completion_tokens,
            cost_usd=record.cost_usd,
        ),
        expires_at=record.expires_at,
        request=record.request,
    )


def to_tags(stored: str) -> tuple[str, ...]:
    """Raises orjson.JSONDecodeError."""
    return () if stored == "[]" else tuple(orjson.loads(stored))


def to_vectors(blobs: list[bytes]) -> FloatMatrix:
    """float32 (N, D) of unit norm from the stored float16. Raises StoreError when they are damaged."""
    vectors, sound = sound_vectors(blobs)
    if not sound.all():
        raise StoreError("a stored vector is damaged: remove the cache file")
    return vectors


def sound_vectors(blobs: list[bytes]) -> tuple[FloatMatrix, npt.NDArray[np.bool_]]:
    """As `to_vectors` of those that are not damaged; and bool (N,), which they are. All are of one space, so
    one of another length than most is damaged."""
    lengths = Counter(map(len, blobs))
    usual = max(lengths, key=lambda length: (length % 2 == 0, lengths[length]))
    sound = np.array([len(blob) == usual and usual % 2 == 0 for blob in blobs], dtype=np.bool_)
    whole = [blob for blob, good in zip(blobs, sound, strict=True) if good]
    vectors = np.frombuffer(b"".join(whole), dtype="<f2").reshape(len(whole), usual // 2).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        of_unit_norm = (np.abs(norms - 1) <= STORED_NORM_TOLERANCE)[:, 0]  # so written that NaN is not
    sound[sound] = of_unit_norm
    return vectors[of_unit_norm] / norms[of_unit_norm], sound


def _to_vector(blob: bytes) -> FloatVector:
    """As `to_vectors` of one, at a third of its cost: every semantic hit pays this."""
    if len(blob) % 2:
        raise StoreError("a stored vector is damaged: remove the cache file")
    vector = np.frombuffer(blob, dtype="<f2").astype(np.float32)
    norm = math.sqrt(float(np.dot(vector, vector)))
    if not abs(norm - 1) <= STORED_NORM_TOLERANCE:
        raise StoreError("a stored vector is damaged: remove the cache file")
    vector /= np.float32(norm)
    return vector


def _is_unit(vector: FloatVector) -> bool:
    if vector.dtype != np.float32 or vector.ndim != 1:
        return False
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(abs(float(np.linalg.norm(vector)) - 1) <= NORM_TOLERANCE)

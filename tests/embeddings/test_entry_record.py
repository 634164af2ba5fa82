from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from embeddings.entry_record import sound_vectors, to_entry, to_record, to_vectors
from embeddings.protocols import StoreError
from tests.entries import make_entry, unit_vector

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(body=st.dictionaries(st.text(st.characters(codec="utf-8")), JSON, max_size=4))
def test_any_json_body_comes_back_as_it_was(body: dict[str, object]) -> None:
    entry = make_entry("q")
    entry = dataclasses.replace(
        entry, vector=None, space=None, answer=structs.replace(entry.answer, body=body)
    )
    assert to_entry(0, to_record(entry)) == entry


def test_order_of_fields_is_kept() -> None:
    entry = make_entry("q")
    body = {"z": 1, "a": 2, "m": {"y": 1, "b": 2}}
    entry = dataclasses.replace(entry, answer=structs.replace(entry.answer, body=body))
    back = to_entry(0, to_record(entry)).answer.body
    assert list(back) == ["z", "a", "m"]
    assert list(back["m"]) == ["y", "b"]


@pytest.mark.parametrize("dimension", [1, 16, 384, 1536])
def test_vectors_lose_float16_rounding_only(dimension: int) -> None:
    texts = [f"text {n}" for n in range(200)]
    entries = [dataclasses.replace(make_entry(text), vector=unit_vector(text, dimension)) for text in texts]
    blobs = [to_record(entry).vector or b"" for entry in entries]
    assert {len(blob) for blob in blobs} == {2 * dimension}
    vectors = to_vectors(blobs)
    originals = np.stack([unit_vector(text, dimension) for text in texts])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert np.abs(np.einsum("nd,nd->n", vectors, originals) - 1).max() < 1e-6
    assert np.abs(vectors @ vectors.T - originals @ originals.T).max() < 1e-3
    one = to_entry(1, to_record(entries[0])).vector
    assert one is not None
    assert np.allclose(one, vectors[0], atol=1e-7)
    assert one.flags.writeable


@pytest.mark.parametrize(
    "blob", [b"\x00\x00\x00", b"\x00" * 32, b"\xff" * 32, np.full(16, 2, "<f2").tobytes()]
)
def test_damaged_vectors_are_store_errors(blob: bytes) -> None:
    record = to_record(make_entry("q"))._replace(vector=blob)
    with pytest.raises(StoreError, match="damaged"):
        to_entry(1, record)
    with pytest.raises(StoreError, match=r"damaged|length"):
        to_vectors([blob])


def test_vectors_of_two_lengths_are_a_store_error() -> None:
    good = to_record(make_entry("q")).vector
    assert good is not None
    with pytest.raises(StoreError, match="damaged"):
        to_vectors([good, good[:-2]])


def test_damaged_vectors_are_told_from_sound_ones() -> None:
    goods = [to_record(make_entry(name)).vector for name in "abc"]
    sound_blobs = [blob for blob in goods if blob is not None]
    bad = [b"\x00" * 32, b"\xff" * 32, sound_blobs[0][:-2], b"\x01"]
    vectors, sound = sound_vectors([bad[0], sound_blobs[0], *bad[1:3], *sound_blobs[1:], bad[3]])
    assert sound.tolist() == [False, True, False, False, True, True, False]
    assert np.array_equal(vectors, to_vectors(sound_blobs))
    nothing, none_sound = sound_vectors(bad[:2])
    assert (len(nothing), none_sound.tolist()) == (0, [False, False])


def test_damaged_body_is_a_store_error() -> None:
    with pytest.raises(StoreError, match="entry 7 is damaged"):
        to_entry(7, to_record(make_entry("q"))._replace(body=b"{"))


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_times_must_be_finite(number: float) -> None:
    entry = make_entry("q")
    with pytest.raises(StoreError, match="finite"):
        to_record(dataclasses.replace(entry, expires_at=number))
    with pytest.raises(StoreError, match="finite"):
        to_record(dataclasses.replace(entry, answer=structs.replace(entry.answer, created_at=number)))

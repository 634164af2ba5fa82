"""The written conversations: what the cross-encoder learns from is not what tells the worth of its scores."""

from __future__ import annotations

from gateway.conversation_corpus import (
    conversation_pairs,
    gist_pairs,
    kept_from_encoder,
    written_conversations,
)
from policies.conversation import gist

SEED = 0


def test_half_of_the_groups_are_kept_from_the_cross_encoder() -> None:
    groups, files = written_conversations()
    kept = [group for group in groups if kept_from_encoder(group, SEED)]
    assert 0.35 < len(kept) / len(groups) < 0.55
    assert all(len(file.sha256) == 64 for file in files)


def test_the_cross_encoder_sees_no_gist_of_a_group_kept_from_it() -> None:
    groups, _ = written_conversations()
    seen = {text for pair in gist_pairs(groups, SEED) for text in (pair.a, pair.b)}
    kept = {
        gist(talk)
        for group in groups
        if kept_from_encoder(group, SEED)
        for a, b, _ in conversation_pairs(group)
        for talk in (a, b)
    }
    assert len(kept) > 300
    # A bare "yes, please" that leans on nothing may stand in two groups.
    assert all("|" not in text for text in seen & kept)


def test_gists_that_are_equal_teach_nothing_and_stay_out() -> None:
    groups, _ = written_conversations()
    pairs = gist_pairs(groups, SEED)
    assert all(pair.a != pair.b for pair in pairs)
    assert {pair.same for pair in pairs} == {True, False}


def test_of_two_traps_nothing_is_said() -> None:
    groups, _ = written_conversations()
    for group in groups:
        same = 1 + len(group.same)
        pairs = conversation_pairs(group)
        assert len(pairs) == same * (same - 1) // 2 + same * len(group.traps)
        assert sum(is_same for *_, is_same in pairs) == same * (same - 1) // 2

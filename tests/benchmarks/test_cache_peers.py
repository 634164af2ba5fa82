"""Peers of the cache: what their processes are asked, what is made of their answers, and what is said of one
that cannot be measured."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import cache_peers, peer_job, peers
from benchmarks.cache_peers import PEERS, CachePeer, Pair
from benchmarks.cache_policies import Stream
from benchmarks.peer_job import Messages, PeerProgram, Reply, Vectors
from benchmarks.peers import Peer, Unavailable
from benchmarks.processes import CommandFailed
from embeddings.protocols import Encoding


class FakePeerCache:
    """Takes texts with the same first letter for the same; declines conversations."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors
        self._answers: dict[float, str] = {}

    async def ask(self, messages: Messages, answer: str) -> Reply:
        if len(messages) > 1:
            return Reply(served=None, declined=True)
        key = float(self._vectors[messages[-1]["content"].upper()][0])
        if key in self._answers:
            return Reply(served=self._answers[key])
        self._answers[key] = answer
        return Reply(served=None)

    async def close(self) -> None:
        self._answers.clear()


class FakeLetters:
    """An embedder: the first letter."""

    space = "letters"
    dimension = 1
    max_tokens = 8

    def encode(self, texts: Sequence[str]) -> Encoding:
        return Encoding(
            vectors=np.array([[ord(text[0])] for text in texts], np.float32),
            token_counts=np.ones(len(texts), np.int64),
            truncated=np.zeros(len(texts), np.bool_),
        )

    def close(self) -> None:
        pass


async def opened(vectors: Vectors, _: int) -> FakePeerCache:
    return FakePeerCache(vectors)


PROGRAM = PeerProgram(embedded=str.upper, open=opened, about=lambda: {"threshold": 0.5, "versions": {}})
TALK = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}, *peer_job.message("a5")]
JOB = {
    "streams": {"one": ["a1", "b1", "a2"]},
    "pairs": {"questions": [[peer_job.message("a3"), peer_job.message("a4")], [peer_job.message("b"), TALK]]},
}
PACKAGE = Peer(name="Some", home="some", requirement="some==1")


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a peer's process tells of JOB."""
    (tmp_path / "job.json").write_text(json.dumps(JOB))
    monkeypatch.setattr(sys, "argv", ["peer", "texts", str(tmp_path)])
    peer_job.main(PROGRAM)
    texts = json.loads((tmp_path / "texts.json").read_text())
    assert texts == ["A1", "B1", "A2", "A3", "A4", "B", "A5"]
    np.save(tmp_path / "vectors.npy", FakeLetters().encode(texts).vectors)
    monkeypatch.setattr(sys, "argv", ["peer", "replay", str(tmp_path)])
    peer_job.main(PROGRAM)
    answer: dict[str, Any] = json.loads((tmp_path / "told.json").read_text())
    return answer


def test_a_stream_tells_whose_answer_each_question_got(told: dict[str, Any]) -> None:
    stream = told["streams"]["one"]
    assert stream["served"] == [None, None, 0]
    assert stream["declined"] == 0
    assert stream["cpu_s"] >= 0


def test_a_pair_is_asked_of_an_empty_cache(told: dict[str, Any]) -> None:
    assert told["pairs"]["questions"] == {"served": [True, False], "declined": 1}
    assert told["threshold"] == 0.5


def test_a_text_that_the_peer_did_not_say_it_embeds_has_no_vector_and_is_not_told() -> None:
    with pytest.raises(KeyError) as raised:
        Vectors(["a"], np.ones((1, 2), np.float32))["a secret"]
    assert "secret" not in str(raised.value)


def test_a_hit_is_right_when_the_class_is_the_same_and_never_for_what_is_asked_once() -> None:
    stream = Stream(
        texts=["a", "b", "c", "d", "e"], vectors=np.ones((5, 1), np.float32), classes=[1, 1, -1, -1, 2]
    )
    told = {"served": [None, 0, None, 2, 0], "declined": 1, "cpu_s": 0.5}
    row = cache_peers.stream_row("Some", 0.6, stream, told)
    assert (row["hit_rate"], row["error_rate"]) == (0.6, 0.4)
    assert row["error_rate_among_hits"] == pytest.approx(2 / 3)
    assert (row["setting"], row["declined"], row["cpu_ms"]) == (0.6, 1, 100)


def test_pairs_are_counted_by_their_labels() -> None:
    pairs = [Pair(cached="a", asked="b", same=same) for same in (True, True, False, False, False)]
    row = cache_peers.pair_row("Some", pairs, {"served": [True, False, True, False, False], "declined": 0})
    assert (row["same"], row["served"]) == (2, 0.5)
    assert (row["traps"], row["traps_served"]) == (3, pytest.approx(1 / 3))


def test_a_question_becomes_one_message_and_a_conversation_stays() -> None:
    assert Pair(cached="a", asked=TALK, same=True).messages() == [peer_job.message("a"), TALK]


def test_one_that_cannot_be_had_is_reported_and_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    absent, present = PEERS

    def installed(package: Peer, beside: Sequence[str], *, may_install: bool) -> Path:
        if package is absent.package:
            raise Unavailable("does not install: no luck")
        return Path(sys.executable)

    stream = {"served": [None, 0], "declined": 0, "cpu_s": 0.0}
    answer = {
        "threshold": 0.7,
        "versions": {},
        "streams": {"one": stream},
        "pairs": {"questions": {"served": [True, False], "declined": 0}},
    }
    monkeypatch.setattr(cache_peers, "installed", installed)
    monkeypatch.setattr(cache_peers, "told_by", lambda *_: answer)
    streams = {"one": Stream(texts=["a", "b"], vectors=np.ones((2, 1), np.float32), classes=[1, 1])}
    pairs = {"questions": [Pair(cached="a", asked="b", same=same) for same in (True, False)]}
    payload = cache_peers.measured(streams, pairs, FakeLetters(), may_install=False)
    assert payload["unavailable"] == {absent.name: "does not install: no luck"}
    assert list(payload["peers"]) == [present.name]
    [row] = payload["streams"]["one"]["rows"]
    assert (row["policy"], row["hit_rate"], row["error_rate"]) == (present.name, 0.5, 0)
    assert payload["fow_cache"]["questions"][0]["served"] == 1
    printed = cache_peers.table(payload)
    assert f"{absent.name}: does not install: no luck" in printed
    assert "100.0% of 1 same" in printed


def test_a_program_that_fails_says_why() -> None:
    peer = CachePeer(package=PACKAGE, program="benchmarks.no_such_program")
    with pytest.raises(Unavailable, match=r"does not run: .*No module named benchmarks\.no_such_program"):
        cache_peers.told_by(peer, Path(sys.executable), JOB, FakeLetters())


def test_what_a_peer_needs_beside_it_is_installed_into_its_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run: list[list[str]] = []

    def finish(command: list[str], _: float) -> str:
        run.append(command)
        if "broken==1" in command:
            raise CommandFailed("pip failed: no luck")
        return ""

    monkeypatch.setattr(peers, "CACHE", tmp_path)
    monkeypatch.setattr(peers, "finish", finish)
    monkeypatch.setattr(cache_peers, "finish", finish)
    python = cache_peers.installed(PACKAGE, ["beside==2"], may_install=True)
    assert python == tmp_path / "some" / "bin" / "python"
    assert (run[-1][0], run[-1][-1]) == (str(python), "beside==2")
    with pytest.raises(Unavailable, match="does not install: pip failed: no luck"):
        cache_peers.installed(PACKAGE, ["broken==1"], may_install=True)


def test_pairs_are_read_with_the_labels_of_the_package_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = json.dumps({"questions": [["a", "b", True]], "conversations": [[TALK, TALK, False]]})
    monkeypatch.setattr(cache_peers, "finish", lambda *_: printed)
    pairs = cache_peers.fow_cache(Path("python"))
    assert pairs["questions"] == [Pair(cached="a", asked="b", same=True)]
    assert pairs["conversations"] == [Pair(cached=TALK, asked=TALK, same=False)]

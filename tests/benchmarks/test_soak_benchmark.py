"""The soak: what its clients ask and check, what its figures are held to, and a few real seconds of it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest

from benchmarks import load
from benchmarks.processes import free_port
from benchmarks.soak import main, run
from benchmarks.soak_client import KINDS, REPEATED, Question, Questions, Tally, visit
from benchmarks.soak_figures import judged, medians, table
from benchmarks.soak_probe import growth
from benchmarks.soak_servers import fetch, gauges
from benchmarks.soak_upstream import SoakUpstream, tag_of

CHAT, CHAT_STREAM = KINDS[:2]
TAG = tag_of(7)


def question(**fields: Any) -> Question:
    blank = {"kind": CHAT, "data": b"", "tag": TAG.strip().encode(), "leaving": "", "patience": 0.5}
    return Question(**{**blank, **fields})


def answer(body: bytes, status: int = 200) -> load.Answer:
    return load.Answer(status=status, head=b"", body=body)


def sample(**figures: float | None) -> dict[str, Any]:
    blank = {"rss_mib": 80.0, "fds": 100, "upstream_connections": 20, "tasks": 90.0, "flights": 5.0}
    return {**blank, "entries": 2000.0, "at_s": 5.0, **figures}


def figures(samples: list[dict[str, Any]], **others: Any) -> dict[str, Any]:
    rest = {"fds": 22, "upstream_connections": 2, "tasks": 3.0, "flights": 0.0}
    blank = {
        "samples": samples,
        "thirds": medians(samples),
        "rest": {"before": rest, "after": rest},
        "connections": 64,
        "pool_left": 0,
        "upstream_idle_s": 0.05,
        "max_entries": 2000,
        "clients": {"faults": {}},
    }
    return {**blank, **others}


def missed(figures: dict[str, Any]) -> list[str]:
    return [goal["name"] for goal in judged(figures) if not goal["met"]]


def test_a_gateway_that_stays_as_it_is_meets_every_goal() -> None:
    goals = judged(figures([sample() for _ in range(9)]))
    assert len(goals) == 11
    assert all(goal["met"] for goal in goals)


def test_memory_that_grows_is_found() -> None:
    assert missed(figures([sample(rss_mib=80 + number) for number in range(9)])) == [
        "RSS, last / middle third"
    ]


@pytest.mark.parametrize(
    ("grown", "name"),
    [
        ({"fds": 120}, "open files above rest, most, without the pool"),
        ({"fds": 160, "upstream_connections": 80}, "upstream connections, most"),
        ({"tasks": 260.0}, "tasks, most"),
    ],
)
def test_more_than_so_many_clients_need_is_found(grown: dict[str, float], name: str) -> None:
    assert missed(figures([*(sample() for _ in range(8)), sample(**grown)])) == [name]


@pytest.mark.parametrize(
    ("after", "name"),
    [
        ({"fds": 23}, "open files left, without the pool"),
        ({"tasks": 4.0}, "tasks left"),
        ({"flights": 1.0}, "flights left"),
    ],
)
def test_what_is_left_when_all_have_gone_is_found(after: dict[str, float], name: str) -> None:
    whole = figures([sample() for _ in range(9)])
    whole["rest"] = {**whole["rest"], "after": {**whole["rest"]["after"], **after}}
    assert missed(whole) == [name]


def test_connections_that_the_pool_keeps_are_not_left_over() -> None:
    whole = figures([sample() for _ in range(9)])
    kept = {**whole["rest"]["after"], "fds": 40, "upstream_connections": 20}
    assert missed({**whole, "rest": {**whole["rest"], "after": kept}}) == []


@pytest.mark.parametrize(
    ("others", "name"),
    [
        ({"upstream_idle_s": 1.2}, "s until the upstream was idle"),
        ({"clients": {"faults": {"chat: status 500": 1}}}, "wrong answers"),
        ({"max_entries": 1999}, "cache entries, most"),
        ({"pool_left": 1}, "upstream connections left in the pool"),
    ],
)
def test_a_broken_promise_is_found(others: dict[str, Any], name: str) -> None:
    assert missed(figures([sample() for _ in range(9)], **others)) == [name]


def test_what_a_gateway_does_not_tell_is_not_judged() -> None:
    silent = figures([sample(tasks=None, flights=None) for _ in range(9)])
    rest = {"fds": 22, "upstream_connections": 2, "tasks": None, "flights": None}
    goals = judged({**silent, "rest": {"before": rest, "after": rest}})
    assert not [goal["name"] for goal in goals if "task" in goal["name"] or "flight" in goal["name"]]


def test_thirds_are_in_the_order_of_time() -> None:
    thirds = medians([sample(fds=fds) for fds in (1, 2, 3, 10, 20, 30, 5, 6, 7)])
    assert [third["fds"] for third in thirds] == [2, 20, 6]


def test_gauges_are_summed_over_their_labels() -> None:
    page = (
        "# HELP lockgate_tasks t\nlockgate_tasks 12.0\n"
        'lockgate_upstream_connections{backend="a"} 3.0\nlockgate_upstream_connections{backend="b c"} 4.0\n'
    )
    assert gauges(page) == {"tasks": 12.0, "flights": None, "own_upstream_connections": 7.0, "entries": None}


def test_growth_names_what_became_more() -> None:
    before = {"objects": 10, "tasks": {"serve": 1}, "types": {"list": 5, "dict": 9}, "kib_by_line": {}}
    after = {"objects": 14, "tasks": {"serve": 1, "_run": 2}, "types": {"list": 8, "dict": 4}}
    grown = growth(before, {**after, "kib_by_line": {}})
    assert grown == {"objects": 4, "tasks": {"_run": 2}, "types": {"list": 3}, "kib_by_line": {}}


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (f'"{TAG}words{TAG}"}}', None),
        (f'"{TAG}words"}}', "another answer"),
        (f'"{tag_of(8)}words{tag_of(8)}"}}', "another answer"),
        ('"words"}', "no whole answer"),
        (f'"{TAG}words{TAG}"', "another end"),
    ],
)
def test_an_answer_must_be_whole_and_that_of_its_question(body: str, fault: str | None) -> None:
    assert question().fault(answer(body.encode())) == fault


def test_an_error_status_is_no_answer() -> None:
    assert question().fault(answer(b"{}", status=502)) == "status 502"


def test_the_same_seed_asks_the_same() -> None:
    one, other = (Questions("http://127.0.0.1:1", seed=3) for _ in range(2))
    assert [one.next() for _ in range(50)] == [other.next() for _ in range(50)]


def test_questions_are_new_repeated_and_at_the_same_time_and_some_are_left() -> None:
    questions = Questions("http://127.0.0.1:1", seed=3)
    asked = [questions.next() for _ in range(2000)]
    numbers = [int(one.tag.strip(b"<q>")) for one in asked]
    times = Counter(number for number in numbers if number > REPEATED)
    assert {1, 6} <= set(times.values()) <= set(range(1, 7))
    assert 400 < sum(number < REPEATED for number in numbers) < 600
    assert {one.kind.name for one in asked} == {kind.name for kind in KINDS}
    left = Counter(one.leaving for one in asked)
    assert set(left) == {"", "in the body", "before the answer", "in the answer"}
    assert 0.75 < left[""] / len(asked) < 0.85
    assert not any(one.leaving == "in the answer" and not one.kind.stream for one in asked)


async def test_every_answer_of_the_upstream_has_the_tag_of_its_question_at_both_ends() -> None:
    loop = asyncio.get_running_loop()
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with await loop.create_server(lambda: SoakUpstream(0.001), "127.0.0.1", port):
        for kind in (CHAT, CHAT_STREAM):
            request = load.post(f"{url}{kind.path}", kind.body(f"{TAG} why?"), {})
            outcome = await load.run(url, request, connections=1, requests=1)
            assert outcome.last is not None
            assert question(kind=kind).fault(outcome.last) is None
        assert json.loads(await asyncio.to_thread(fetch, f"{url}/soak"))["running"] == 0


async def test_what_clients_leave_behind_the_upstream_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SoakUpstream, "dropped", 0)
    monkeypatch.setattr("benchmarks.soak_client.MAX_THINK_S", 0.0)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    tally, enough, all_left = Tally(), asyncio.Event(), asyncio.Event()

    class Asked(Questions):
        """200 of them, and of the one API that this upstream knows."""

        left = 200

        def next(self) -> Question:
            self.left -= 1
            if self.left == 0:
                enough.set()
            while not (asked := super().next()).kind.name.startswith("chat"):
                pass
            return asked

    class Told(SoakUpstream):
        def connection_lost(self, error: Exception | None) -> None:
            super().connection_lost(error)
            if enough.is_set() and SoakUpstream.connections == 0:
                all_left.set()

    server = await asyncio.get_running_loop().create_server(lambda: Told(0.001), "127.0.0.1", port)
    async with asyncio.timeout(20), server, asyncio.TaskGroup() as group:
        visiting = group.create_task(visit(url, Asked(url, seed=5), tally, 8))
        await enough.wait()
        visiting.cancel()
        await all_left.wait()
    assert tally.faults == {}
    assert tally.answered.keys() == {"chat", "chat-stream"}
    assert tally.left.keys() == {"before the answer", "in the answer", "in the body"}
    assert SoakUpstream.running == 0
    assert SoakUpstream.dropped > 0


def test_a_run_too_short_for_three_thirds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["soak.py", "--seconds", "10"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2


def test_a_few_seconds_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.soak.RESET_HELD_S", 0.0)
    payload = run(3.0, 0.5, connections=8, census=True)
    clients = payload["clients"]
    assert clients["faults"] == {}
    assert {"hit-exact", "miss"} <= set(clients["cache"])
    assert set(clients["left"]) == {"before the answer", "in the answer", "in the body"}
    assert len(payload["samples"]) == 6
    promised = {"s until the upstream was idle", "open files left, without the pool", "cache entries, most"}
    assert {goal["name"] for goal in payload["goals"] if goal["met"]} >= promised
    assert payload["census"]["at_rest"]["tasks"] == {}
    assert payload["census"]["at_rest"]["flights"] == 0
    assert "tasks: none" in table(payload)

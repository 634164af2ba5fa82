"""The gateway benchmark: what it checks of an answer, what figures are held to, and one small real run."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import upstream
from benchmarks.contest import content, quantile
from benchmarks.gateway import main, run
from benchmarks.gateway_goals import GOALS, judged, table
from benchmarks.profiler import own_time
from benchmarks.servers import OWN

STREAM = b"".join(upstream.events())


def cell(server: str, kind: str = "json", connections: int = 64, **figures: Any) -> dict[str, Any]:
    blank = {"requests": 1, "errors": {}, "req_per_s": 1.0, "p50_ms": 1.0, "p99_ms": 1.0, "cpu_us": 1.0}
    return {"server": server, "kind": kind, "connections": connections, **blank, **figures}


def named(goals: list[dict[str, Any]], name: str) -> dict[str, Any]:
    [goal] = [goal for goal in goals if goal["name"] == name]
    return goal


@pytest.mark.parametrize(
    "answer",
    [
        STREAM.removesuffix(b"data: [DONE]\n\n"),
        b"",
        b"data: {}\n\ndata: [DONE]\n\n",
    ],
)
def test_a_stream_that_lost_its_end_or_its_chunks_is_no_answer(answer: bytes) -> None:
    with pytest.raises((ValueError, KeyError)):
        content("stream", answer)


def test_a_stream_with_a_piece_missing_is_another_text() -> None:
    events = upstream.events()
    assert content("stream", STREAM) == upstream.STREAMED
    assert content("stream", b"".join(events[:5] + events[6:])) != upstream.STREAMED


def test_quantiles_are_figures_that_were_seen() -> None:
    assert [quantile([1.0, 2.0, 3.0, 4.0], share) for share in (0.0, 0.5, 0.99)] == [1.0, 3.0, 4.0]


def test_a_goal_is_judged_in_its_own_cell() -> None:
    cells = [
        cell("bare", cpu_us=200.0),
        cell("lockgate", cpu_us=280.0),
        cell("lockgate", connections=1, cpu_us=900.0),
        cell("lockgate-hit", cpu_us=130.0),
    ]
    goals = judged(cells, {})
    assert named(goals, "pass-through CPU / bare") == {
        "name": "pass-through CPU / bare",
        "value": 1.4,
        "wanted": "<= 1.5",
        "met": True,
    }
    assert named(goals, "exact hit CPU us")["met"] is False


def test_a_goal_against_a_server_that_was_not_measured_is_left_out() -> None:
    names = [goal["name"] for goal in judged([cell("lockgate")], {})]
    assert not [name for name in names if "/" in name]


def test_memory_is_compared_between_servers() -> None:
    goals = judged([], {"lockgate": {"rss_mib": 90.0}, "bare": {"rss_mib": 45.0}})
    assert goals == [{"name": "RSS / bare", "value": 2.0, "wanted": "", "met": None}]


def test_every_goal_names_a_figure_that_cells_or_servers_have() -> None:
    assert {goal.measure for goal in GOALS} <= {*cell("any"), "rss_mib"}


def test_the_table_shows_errors_and_why_a_peer_is_missing() -> None:
    payload = {
        "cells": [cell("lockgate", errors={"another length": 3}, p99_ms=None)],
        "servers": {"lockgate": {"rss_mib": 80.0, "pss_mib": 60.0, "what": "this checkout"}},
        "unavailable": {"litellm": "does not install: no network"},
        "goals": [],
    }
    shown = table(payload)
    assert "3 another length" in shown
    assert "not measured: does not install: no network" in shown


def test_own_time_is_that_of_the_innermost_frame_of_the_main_thread() -> None:
    stacks = (
        "thread (7): MainThread;main (app.py:3);send (uvicorn/http.py:9) 4\n"
        "thread (7): MainThread;main (app.py:3);send (uvicorn/http.py:12) 1\n"
        "thread (8): worker_0;wait (threading.py:3) 90\n"
    )
    functions, packages = own_time(stacks)
    assert functions == {"send (uvicorn/http.py)": 5}
    assert packages == {"uvicorn": 5}


def test_an_unknown_peer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["gateway.py", "--peers", "nobody"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2


def test_a_small_run_measures_lockgate_beside_the_bare_proxy() -> None:
    payload = run(OWN, [("json", 4), ("stream", 1), ("paced", 2)], rounds=1, round_s=0.05, quick=True)
    assert payload["unavailable"] == {}
    cells = {(cell["kind"], cell["server"]): cell for cell in payload["cells"]}
    everyone = {"bare", "lockgate", "lockgate-hit"}
    assert cells.keys() == {
        *(("json", name) for name in everyone),
        *(("stream", name) for name in everyone),
        ("paced", "bare"),
        ("paced", "lockgate"),
    }
    assert [cell["errors"] for cell in cells.values()] == [{}] * len(cells)
    assert all(cell["cpu_us"] > 10 and cell["req_per_s"] > 0 for cell in cells.values())
    assert all(server["rss_mib"] >= server["pss_mib"] > 1 for server in payload["servers"].values())

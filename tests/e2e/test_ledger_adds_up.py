"""The ledger of a real gateway adds up: to the upstream's own count and to what the clients saw, exactly."""

from __future__ import annotations

from pathlib import Path

from benchmarks.ledger import kill_under_load, run, run_and_kill
from benchmarks.ledger_checks import failed


def test_mixed_requests_add_up_while_it_runs_and_after_a_clean_stop(tmp_path: Path) -> None:
    ran = run(tmp_path, 600)
    assert {when: failed(found) for when, found in ran.found.items()} == {"running": [], "stopped": []}
    assert ran.ledger["requests"] == 600
    assert min(ran.ledger[name] for name in ("hits", "errors", "cancelled", "saved_tokens")) > 0
    assert all(count["picousd"] > 0 for count in ran.upstream.values())
    assert len(ran.scenes) >= 12, "not every kind of scene was played"


def test_a_kill_a_second_after_the_last_request_loses_nothing(tmp_path: Path) -> None:
    assert failed(run_and_kill(tmp_path, 150, seed=7)) == []


def test_a_kill_under_load_loses_a_second_at_most(tmp_path: Path) -> None:
    found = kill_under_load(tmp_path, after_s=1.5, seed=8)
    assert found[0].wanted > 0, "nothing had ended a second before"
    assert failed(found) == []

"""The ledger's benchmark: its mix is what it says, and its checks find what is wrong."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import pytest

from benchmarks.ledger_checks import DIMENSIONS, checks, failed, picousd, sums, while_running
from benchmarks.ledger_client import Ask, Seen
from benchmarks.ledger_mix import Mix
from benchmarks.ledger_questions import MODELS, NO_TOKENS, Question, Tokens, question_in, reference

QUESTION = Question(id=8, parts=4)
LARGE = MODELS["large"]


@pytest.mark.parametrize("requests", [1, 7, 500])
def test_the_scenes_send_as_many_requests_as_were_asked_for(requests: int) -> None:
    assert sum(scene.requests for scene in Mix(3).scenes(requests)) == requests


def test_the_same_seed_gives_the_same_scenes() -> None:
    first, second = ([scene.name for scene in Mix(seed).scenes(300)] for seed in (3, 3))
    assert first == second
    assert Counter(first) != Counter(scene.name for scene in Mix(4).scenes(300))


@pytest.mark.parametrize(
    "question",
    [QUESTION, Question(id=9, parts=5, first=("503", "429far"), then="stall", at=2)],
)
def test_a_request_holds_all_of_its_question(question: Question) -> None:
    assert question_in(Ask(question=question).sent()) == question


def test_a_whole_answer_takes_more_than_its_words_told() -> None:
    told = [QUESTION.told(words) for words in range(QUESTION.parts + 1)]
    assert sorted(one.completion for one in told) == [one.completion for one in told]
    assert QUESTION.whole.completion > told[-1].completion
    assert QUESTION.whole.cached > 0


def test_a_price_counts_each_token_once() -> None:
    tokens = Tokens(prompt=10, completion=2, cached=3, written=4)
    assert LARGE.picousd(tokens) == 3 * LARGE.input + 3 * LARGE.cached + 4 * LARGE.written + 2 * LARGE.output
    assert LARGE.picousd(NO_TOKENS) == 0


def test_without_a_gateway_the_large_model_of_the_route_answers() -> None:
    assert reference("auto") is LARGE
    assert reference("small") is MODELS["small"]


def pages(seen: list[Seen]) -> dict[str, dict[str, Any]]:
    """What a ledger says that counts as it should, of whole answers of the large model."""
    tokens = sum((one.tokens for one in seen), NO_TOKENS)
    row = {
        "requests": len(seen),
        "hits": 0,
        "errors": 0,
        "cancelled": 0,
        "upstream_calls": len(seen),
        "estimated": 0,
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.completion,
        "cached_tokens": tokens.cached,
        "cache_write_tokens": tokens.written,
        "saved_tokens": 0,
        "cost_usd": LARGE.picousd(tokens) / 1e12,
        "without_usd": LARGE.picousd(tokens) / 1e12,
    }
    names = {"tenant": "shop", "key": "web", "model": LARGE.upstream_name, "api": "chat", "cache": "miss"}
    return {by: {"rows": [{by: names.get(by, "x"), **row}], "total": dict(row)} for by in DIMENSIONS}


def told(seen: list[Seen]) -> dict[str, Any]:
    tokens = sum((one.tokens for one in seen), NO_TOKENS)
    count = {
        "requests": len(seen),
        "prompt": tokens.prompt,
        "completion": tokens.completion,
        "cached": tokens.cached,
        "written": tokens.written,
        "picousd": LARGE.picousd(tokens),
    }
    return {"running": 0, "models": {LARGE.upstream_name: count}}


def answers(count: int) -> list[Seen]:
    ask = Ask(question=QUESTION, model="large")
    return [Seen(ask=ask, request_id="r", status=200, cache="miss", usage=QUESTION.whole)] * count


def test_what_adds_up_passes() -> None:
    seen = answers(3)
    assert failed(checks(pages(seen), told(seen), seen)) == []


@pytest.mark.parametrize(
    "column", ["requests", "upstream_calls", "prompt_tokens", "cached_tokens", "saved_tokens", "without_usd"]
)
def test_one_too_many_is_found_in_each_column(column: str) -> None:
    seen = answers(3)
    wrong = copy.deepcopy(pages(seen))
    for page in wrong.values():
        for row in (*page["rows"], page["total"]):
            row[column] += 1e-12 if column.endswith("usd") else 1
    assert failed(checks(wrong, told(seen), seen))


def test_a_dimension_that_lost_a_row_is_found() -> None:
    seen = answers(3)
    wrong = pages(seen)
    wrong["api"]["rows"] = []
    assert any("rows by api" in line for line in failed(checks(wrong, told(seen), seen)))


def test_a_torn_answer_and_a_count_that_shrinks_are_found() -> None:
    before, after = pages(answers(3)), pages(answers(2))
    assert failed(while_running([after, before])) == []
    assert any("only ever grow" in line for line in failed(while_running([before, after])))
    before["key"]["rows"] *= 2
    assert any("do not sum" in line for line in failed(while_running([before])))


def test_money_is_summed_as_whole_picousd() -> None:
    assert sums([{"cost_usd": 0.1}, {"cost_usd": 0.2}]) == {"cost_usd": 300_000_000_000}
    assert picousd(0.1 + 0.2) == 300_000_000_000

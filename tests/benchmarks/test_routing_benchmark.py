"""The routing benchmark: no prompt is scored by heads that saw it, and the table says what was found."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.routing import LABELS, few_labels, folds, given, main, protocols, summarise, table

MODELS = ("mistralai/Mixtral-8x7B-Instruct-v0.1", "gpt-4-1106-preview")
OTHERS = ("mistral-7b-instruct-v0.3", "llama-3.1-nemotron-51b-instruct")


@pytest.mark.parametrize("seed", [0, 1])
def test_folds_score_every_row_once_and_never_one_they_learnt(seed: int) -> None:
    parts = folds(1_003, seed)
    assert sorted(np.concatenate([held for _, held in parts]).tolist()) == list(range(1_003))
    assert all(not np.intersect1d(train, held).size for train, held in parts)


def test_few_labels_learn_from_just_so_many_and_score_the_rest() -> None:
    [(train, held)] = few_labels(2_000, 0)
    assert len(train) == LABELS
    assert sorted([*train, *held]) == list(range(2_000))


def test_the_given_split_is_kept() -> None:
    [(train, held)] = given(3, 5, seed=9)
    assert (train.tolist(), held.tolist()) == ([0, 1, 2], [3, 4])


def test_test_prompts_that_are_in_the_training_file_are_not_scored(tmp_path: Path) -> None:
    routellm, llmrouter = tmp_path / "routing" / "routellm", tmp_path / "routing" / "llmrouter"
    (routellm / "mmlu_responses").mkdir(parents=True)
    llmrouter.mkdir()
    for name in ("mmlu_responses/mmlu_law.csv", "gsm8k_responses.csv"):
        (routellm / name).write_text(f"prompt,{MODELS[0]},{MODELS[1]}\n{name},True,True\n")
    scores = dict.fromkeys(OTHERS, 1.0)
    for part, questions in (("train", ["a", "b"]), ("test", ["b", "c"])):
        rows = [{"question": question, "scores": scores} for question in questions]
        (llmrouter / f"dcrouter_{part}.json").write_text(json.dumps(rows))
    found = {protocol.name: protocol for protocol in protocols(tmp_path)}
    [(train, held)] = found["llmrouter_mistral_test"].split(0)
    prompts = found["llmrouter_mistral_test"].data.prompts
    assert [prompts[i] for i in train] == ["a", "b"]
    assert [prompts[i] for i in held] == ["c"]
    assert found["mmlu_5fold"].data.prompts == ("mmlu_responses/mmlu_law.csv",)


def test_the_table_shows_means_over_the_seeds() -> None:
    def run(apgr: float) -> dict[str, object]:
        measures = {"apgr": apgr, "cpt50": 0.4, "cpt80": 0.6}
        names = ("router", "lexical_only", "length_only", "random", "oracle")
        return {**dict.fromkeys(names, measures), "prompts": 7, "small_quality": 0.5, "large_quality": 0.75}

    summary = summarise([run(0.6), run(0.7)])
    assert (summary["apgr"], summary["apgr_sd"], summary["prompts"]) == (0.65, 0.05, 7)
    assert "| mmlu_5fold | Lockgate | 0.650 | 40.0% | 60.0% |" in table({"mmlu_5fold": summary})


def test_without_data_it_says_what_to_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["routing.py", "--data", str(tmp_path / "absent")])
    with pytest.raises(SystemExit, match=r"absent: no routing data there; .*--data"):
        main()

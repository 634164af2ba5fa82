"""Reading what a router is trained on: every known form, and one clear line for every fault."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from gateway.router_data import (
    LabelledPrompts,
    TrainingDataError,
    contaminated_prompts,
    read_texts,
    read_training_data,
)

MIXTRAL, GPT4 = "mistralai/Mixtral-8x7B-Instruct-v0.1", "gpt-4-1106-preview"
MISTRAL, NEMOTRON = "mistral-7b-instruct-v0.3", "llama-3.1-nemotron-51b-instruct"


def rows(data: LabelledPrompts) -> list[tuple[str, float, float, str]]:
    return list(zip(data.prompts, data.small.tolist(), data.large.tolist(), data.sources, strict=True))


def routellm(folder: Path) -> Path:
    (folder / "mmlu_responses").mkdir(parents=True)
    (folder / "mmlu_responses" / "mmlu_law.csv").write_text(
        f'prompt,{MIXTRAL},{GPT4}\n"one, with\na line",True,False\ntwo,False,True\n'
    )
    (folder / "gsm8k_responses.csv").write_text(
        f"prompt,{MIXTRAL},{GPT4},{MIXTRAL}_response\nthree,0,1,long\nleaked,0,1,x\n"
    )
    (folder / "gsm8k_contaminated_prompts.jsonl").write_text(
        json.dumps({"train_prompt": "?", "eval_prompt": "leaked", "train_idx": 1, "eval_idx": 2}) + "\n"
    )
    return folder


def test_a_routellm_folder_without_its_contaminated_prompts(tmp_path: Path) -> None:
    folder = routellm(tmp_path / "routellm")
    data = read_training_data([folder])
    assert sorted(rows(data)) == [
        ("one, with\na line", 1.0, 0.0, "mmlu"),
        ("three", 0.0, 1.0, "gsm8k"),
        ("two", 0.0, 1.0, "mmlu"),
    ]
    assert contaminated_prompts(folder) == {"leaked"}
    assert [file.name for file in data.files] == [
        "routellm/gsm8k_responses.csv",
        "routellm/mmlu_responses/mmlu_law.csv",
    ]
    content = (folder / "gsm8k_responses.csv").read_bytes()
    assert data.files[0].sha256 == hashlib.sha256(content).hexdigest()
    assert str(tmp_path) not in repr(data.files)


def test_llmrouter_scores_as_python_literals_or_as_objects(tmp_path: Path) -> None:
    scores = {MISTRAL: 0.25, NEMOTRON: 1.0, "other": 0.0}
    path = tmp_path / "dcrouter_train.json"
    path.write_text(
        json.dumps([{"question": "a", "scores": str(scores)}, {"question": "b", "scores": scores}])
    )
    assert rows(read_training_data([path])) == [("a", 0.25, 1.0, "dcrouter"), ("b", 0.25, 1.0, "dcrouter")]


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_json_lines(tmp_path: Path, ending: str) -> None:
    lines = '{"prompt": "a", "small": 0, "large": true}\n\n{"prompt": "b", "small": 0.5, "large": 1}\n'
    path = tmp_path / f"mine{ending}"
    path.write_bytes(gzip.compress(lines.encode()) if ending.endswith("gz") else lines.encode())
    assert rows(read_training_data([path])) == [("a", 0.0, 1.0, "mine"), ("b", 0.5, 1.0, "mine")]


def test_the_first_of_equal_prompts_is_kept(tmp_path: Path) -> None:
    for name, small in (("first", 0), ("second", 1)):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps({"prompt": "a", "small": small, "large": 1}))
    data = read_training_data([tmp_path / "first.jsonl", tmp_path / "second.jsonl"])
    assert rows(data) == [("a", 0.0, 1.0, "first")]
    assert len(data.files) == 2


def test_other_models_are_named_by_their_columns(tmp_path: Path) -> None:
    path = tmp_path / "answers.csv"
    path.write_text("prompt,tiny,huge\na,false,true\n")
    assert rows(read_training_data([path], ["tiny"], ["huge"])) == [("a", 0.0, 1.0, "answers")]
    with pytest.raises(TrainingDataError, match=r"name one of: prompt, tiny, huge \(--small-model\)"):
        read_training_data([path])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", "{", "a.jsonl line 1: not JSON"),
        ("a.jsonl", "[1]", "a.jsonl line 1: expected an object"),
        ("a.jsonl", '{"prompt": " ", "small": 0, "large": 1}', "line 1: the prompt must be text"),
        ("a.jsonl", '{"small": 0, "large": 1}', "line 1: the prompt must be text"),
        ("a.jsonl", '{"prompt": "a", "large": 1}', "line 1: small must be a quality from 0 to 1"),
        ("a.jsonl", '{"prompt": "a", "small": 0, "large": 7}', "large must be a quality .* not 7"),
        ("a.jsonl", '{"prompt": "a", "small": NaN, "large": 1}', "small must be a quality"),
        ("a.jsonl", "", "no prompt to train on"),
        ("a.csv", "question,x\n", 'no column "prompt"'),
        ("a.csv", "", 'no column "prompt"; columns: none'),
        ("a.csv", f"prompt,{MIXTRAL},{GPT4}\na,perhaps,True\n", "row 2: .* not 'perhaps'"),
        ("a.csv", f"prompt,{MIXTRAL},{GPT4}\na,True\n", "row 2: .* not None"),
        ("a.json", "{", "not JSON"),
        ("a.json", "{}", "expected a list"),
        ("a.json", "[3]", "item 0: expected an object"),
        ("a.json", '[{"question": "a", "scores": "open(1)"}]', "item 0: scores is no mapping"),
        ("a.json", '[{"question": "a", "scores": [1]}]', "item 0: scores is no mapping"),
        ("a.json", '[{"question": "a", "scores": {"x": 1}}]', "item 0: none of the models"),
        ("a.txt", "a", "expected a folder, .csv, .json, .jsonl or .jsonl.gz"),
        ("a.jsonl", "\x00\x01", "not JSON"),
    ],
)
def test_a_fault_is_one_line_that_names_the_place(
    tmp_path: Path, name: str, content: str, words: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(TrainingDataError, match=words) as raised:
        read_training_data([path])
    assert "\n" not in str(raised.value)
    assert str(path) in str(raised.value)


def test_missing_binary_and_empty_places(tmp_path: Path) -> None:
    with pytest.raises(TrainingDataError, match="no such file or folder"):
        read_training_data([tmp_path / "absent.jsonl"])
    with pytest.raises(TrainingDataError, match=r"no \.csv file in this folder"):
        read_training_data([tmp_path])
    (tmp_path / "a.jsonl").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "a.jsonl.gz").write_bytes(b"no gzip")
    for name in ("a.jsonl", "a.jsonl.gz"):
        with pytest.raises(TrainingDataError, match="cannot be read"):
            read_training_data([tmp_path / name])


def test_texts_without_labels(tmp_path: Path) -> None:
    path = tmp_path / "stream.jsonl"
    path.write_text('{"text": "a", "class": 1}\n{"text": "b"}\n')
    texts, file = read_texts(path)
    assert (texts, file.name) == (["a", "b"], "stream.jsonl")
    path.write_text('{"question": "a"}\n')
    with pytest.raises(TrainingDataError, match='line 1: expected an object with a string "text"'):
        read_texts(path)
    with pytest.raises(TrainingDataError, match="no such file"):
        read_texts(tmp_path / "absent.jsonl")

"""The lines of an exported cache: what goes in comes out, and what is wrong is named."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import numpy as np
import orjson
import pytest

from embeddings.protocols import Entry
from gateway.cache_transfer import (
    Header,
    Incoming,
    LockgateFile,
    TransferError,
    key_check,
    line_of_entry,
    line_of_header,
)
from tests.entries import SPACE, make_entry

SECRET = b"s" * 32


def header(entries: int, **changes: Any) -> Header:
    fields = {"exported_at": 5.0, "space": SPACE, "key_check": key_check(SECRET), **changes}
    return Header(lockgate_cache=1, entries=entries, **fields)


def read(content: bytes) -> list[Incoming]:
    return list(LockgateFile(io.BytesIO(content), "c.jsonl").entries())


def file_of(*entries: Entry) -> bytes:
    lines = [line_of_entry(entry, exact_only=False) for entry in entries]
    return b"".join([line_of_header(header(len(lines))), *lines])


def error_of(content: bytes) -> str:
    with pytest.raises(TransferError) as caught:
        read(content)
    return str(caught.value)


def test_an_entry_comes_out_as_it_went_in() -> None:
    entry = make_entry("Ünïcode\n질문", tags=("a", "b"), model="small", cost_usd=0.1 + 0.2)
    [incoming] = read(file_of(entry))
    assert incoming.where == "c.jsonl, line 2"
    assert (incoming.request.api, incoming.request.model) == ("chat", "small")
    assert incoming.request.tenant == "tenant"
    assert incoming.request.body == {"messages": [{"role": "user", "content": "Ünïcode\n질문"}]}
    assert incoming.tags == ("a", "b")
    assert (incoming.text, incoming.space) == (entry.text, SPACE)
    assert incoming.answer == entry.answer
    assert incoming.expires_at == entry.expires_at
    assert incoming.vector is not None
    assert incoming.vector.dtype == np.float32
    assert entry.vector is not None
    assert float(incoming.vector @ entry.vector) > 0.9999


def test_lines_are_as_documented() -> None:
    first, second = file_of(make_entry()).splitlines()
    assert json.loads(first) == {
        "lockgate_cache": 1,
        "exported_at": 5.0,
        "entries": 1,
        "space": SPACE,
        "key_check": key_check(SECRET),
    }
    line = json.loads(second)
    assert set(line) == {
        *("request", "tenant", "api", "model", "tags", "text", "space", "vector", "answer", "expires_at")
    }
    assert len(base64.b64decode(line["vector"])) == 2 * 16
    assert set(line["answer"]) == {
        *("body", "model", "created_at", "prompt_tokens", "completion_tokens", "cost_usd")
    }


def test_an_entry_without_vector_and_one_that_lost_it() -> None:
    plain = make_entry(semantic=False)
    [incoming] = read(file_of(plain))
    assert (incoming.text, incoming.space, incoming.vector) == (None, None, None)
    withdrawn = line_of_entry(make_entry(), exact_only=True)
    assert json.loads(withdrawn)["text"] is None


def test_a_body_as_deep_as_can_be_stored_can_be_moved() -> None:
    body: Any = "x"
    for _ in range(250):
        body = [body]
    entry = make_entry()
    entry.answer.body["deep"] = body  # type: ignore[index]
    [incoming] = read(file_of(entry))
    assert incoming.answer.body["deep"] == body


def test_the_secret_and_its_check() -> None:
    content = line_of_header(header(0, secret=SECRET.hex()))
    assert LockgateFile(io.BytesIO(content), "c").header.secret == SECRET.hex()
    assert SECRET.hex() not in line_of_header(header(0)).decode()
    assert key_check(b"t" * 32) != key_check(SECRET)
    wrong = line_of_header(header(0, secret=(b"t" * 32).hex()))
    assert "line 1: secret: expected the one that key_check is of" in error_of(wrong)
    assert "line 1: secret:" in error_of(
        line_of_header(header(0)).replace(b'"space"', b'"secret":"xyz","space"')
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "c.jsonl: expected what `lockgate cache export` writes, and it is empty"),
        (b"hello\n", "c.jsonl, line 1: expected a JSON object"),
        (b"[]\n", "c.jsonl, line 1: expected the header"),
        (b'{"a": 1}\n', "c.jsonl, line 1: expected the header"),
        (b'{"lockgate_cache": 2}\n', "c.jsonl, line 1: lockgate_cache: expected 1, got 2: upgrade lockgate"),
        (b'{"lockgate_cache": 1}\n', "c.jsonl, line 1: exported_at: the field is missing"),
        (b'{"lockgate_cache": 1, "exp', "c.jsonl, line 1: the last line is cut off: export again"),
    ],
)
def test_what_is_no_header(content: bytes, message: str) -> None:
    assert message in error_of(content)


def test_a_cut_last_line_and_missing_lines() -> None:
    content = file_of(make_entry("a"), make_entry("b"))
    assert error_of(content[:-10]) == "c.jsonl, line 3: the last line is cut off: export again"
    whole = content.splitlines(keepends=True)
    expected = "expected 2 entries after the header, as it says, and there are"
    assert f"{expected} 1" in error_of(b"".join(whole[:-1]))
    assert f"{expected} 3" in error_of(content + whole[-1])
    assert len(read(content.removesuffix(b"\n"))) == 2  # nothing is cut off but the line's end


def changed(**changes: Any) -> bytes:
    """A file of one entry with some fields of its line replaced; those of the answer by answer__NAME."""
    line = json.loads(line_of_entry(make_entry(), exact_only=False))
    for name, value in changes.items():
        of, _, field = name.rpartition("__")
        (line[of] if of else line)[field] = value
    return line_of_header(header(1)) + orjson.dumps(line) + b"\n"


GOOD_REQUEST: list[Any] = ["chat", "tenant", "auto", None, {}, {"messages": []}]
UNIT = np.eye(1, 16, dtype="<f2")[0]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"request": "x"}, "request"),
        ({"request": GOOD_REQUEST[:5]}, "request"),
        ({"request": ["telepathy", *GOOD_REQUEST[1:]]}, "request"),
        ({"request": ["messages", *GOOD_REQUEST[1:]]}, "request: expected one of chat for auto"),
        ({"request": ["chat", "other", *GOOD_REQUEST[2:]]}, "request: expected one of the line's tenant"),
        ({"request": [*GOOD_REQUEST[:3], "medium", {}, {}]}, "request"),
        ({"model": "other"}, "request: expected one of chat for other"),
        ({"api": "telepathy"}, "api: expected one of chat, completions"),
        ({"tenant": ""}, "tenant"),
        ({"tenant": 7}, "tenant"),
        ({"tags": "t"}, "tags"),
        ({"tags": [""]}, "tags"),
        ({"text": 7}, "text"),
        ({"vector": "!"}, "vector: expected base64"),
        ({"vector": base64.b64encode(b"abc").decode()}, "vector: expected base64"),
        ({"vector": ""}, "vector: expected base64"),
        ({"vector": base64.b64encode((2 * UNIT).tobytes()).decode()}, "vector: expected base64"),
        ({"vector": base64.b64encode((np.nan * UNIT).tobytes()).decode()}, "vector: expected base64"),
        ({"text": None}, "vector: expected its text"),
        ({"space": None}, "vector: expected its text and its space"),
        ({"expires_at": "tomorrow"}, "expires_at"),
        ({"expires_at": True}, "expires_at"),
        ({"expires_at": 1e300}, "expires_at"),
        ({"answer__created_at": -1}, "answer.created_at"),
        ({"answer__prompt_tokens": -1}, "answer.prompt_tokens"),
        ({"answer__completion_tokens": 1.5}, "answer.completion_tokens"),
        ({"answer__cost_usd": None}, "answer.cost_usd"),
        ({"answer__body": []}, "answer.body"),
        ({"answer__mood": "good"}, "answer"),
        ({"colour": "red"}, "unknown field"),
    ],
)
def test_what_is_wrong_is_named(changes: dict[str, Any], field: str) -> None:
    message = error_of(changed(**changes))
    assert message.startswith("c.jsonl, line 2: ")
    assert field in message


@pytest.mark.parametrize("line", [b"\n", b"[1]\n", b"{}\n", b"null\n", b"\xff\n"])
def test_a_line_that_is_no_entry(line: bytes) -> None:
    assert error_of(line_of_header(header(1)) + line).startswith("c.jsonl, line 2: ")


def test_what_came_before_a_wrong_line_is_given() -> None:
    content = file_of(make_entry("a")) + b"{}\n"
    entries = LockgateFile(io.BytesIO(content), "c").entries()
    assert next(entries).text == "a"
    with pytest.raises(TransferError, match="line 3"):
        next(entries)


def test_the_tenant_of_a_shared_answer_is_who_asked_first() -> None:
    shared: list[Any] = ["chat", "", "auto", None, {"anthropic-beta": "x"}, {"messages": []}]
    [incoming] = read(changed(request=shared))
    assert incoming.request.tenant == "tenant"
    assert incoming.request.variant == {"anthropic-beta": "x"}

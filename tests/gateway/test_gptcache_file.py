"""The file of GPTCache, here written by plain SQL in the layout of GPTCache 0.1.44."""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.cache_transfer import Incoming, Left, TransferError
from gateway.gptcache_file import GptcacheFile
from gateway.wire.chat_dialect import ChatDialect

LAYOUT = """
CREATE TABLE gptcache_question (id INTEGER NOT NULL PRIMARY KEY, question VARCHAR(3000) NOT NULL,
    create_on DATETIME, last_access DATETIME, embedding_data BLOB, deleted INTEGER);
CREATE TABLE gptcache_answer (id INTEGER NOT NULL PRIMARY KEY, question_id INTEGER NOT NULL,
    answer VARCHAR(3000) NOT NULL, answer_type INTEGER NOT NULL);
CREATE TABLE gptcache_question_dep (id INTEGER NOT NULL PRIMARY KEY, question_id INTEGER NOT NULL,
    dep_name VARCHAR(1000) NOT NULL, dep_data VARCHAR(3000) NOT NULL, dep_type INTEGER NOT NULL);
"""
CREATED = "2026-03-01 12:30:15.250000"


class GptcacheWriter:
    """Writes rows as GPTCache does. Answers of type 0 are text, 1 an image in base64, 2 an image's URL."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.run(LAYOUT)

    def run(self, script: str) -> None:
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(script)

    def add(
        self, question: Any, *answers: tuple[str, int], created: Any = CREATED, deleted: int | None = 0
    ) -> int:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            row = connection.execute(
                "INSERT INTO gptcache_question (question, create_on, last_access, embedding_data, deleted)"
                " VALUES (?, ?, ?, x'0000803f', ?)",
                (question, created, created, deleted),
            ).lastrowid
            connection.executemany(
                "INSERT INTO gptcache_answer (question_id, answer, answer_type) VALUES (?, ?, ?)",
                [(row, *answer) for answer in answers],
            )
        assert row is not None
        return row


@pytest.fixture
def writer(tmp_path: Path) -> GptcacheWriter:
    return GptcacheWriter(tmp_path / "sqlite.db")


def read(path: Path, system: str | None = None) -> list[Incoming | Left]:
    file = GptcacheFile(path, model="gpt-4o", tenant="team", system=system, ttl_s=60.0)
    with closing(file):
        found = list(file.entries())
        assert file.total == len(found)
    return found


def test_a_question_becomes_a_chat_completion(writer: GptcacheWriter) -> None:
    writer.add("why is the sky blue?", ("It scatters light.", 0))
    [entry] = read(writer.path)
    assert isinstance(entry, Incoming)
    assert entry.where == f"{writer.path}, question 1"
    assert (entry.request.api, entry.request.model, entry.request.tenant) == ("chat", "gpt-4o", "team")
    assert entry.request.body == {
        "model": "gpt-4o",
        "messages": [{"role": "user", "content": "why is the sky blue?"}],
    }
    assert (entry.text, entry.vector) == ("why is the sky blue?", None)
    created_at = datetime.fromisoformat(CREATED).timestamp()
    assert entry.answer.created_at == created_at
    assert entry.expires_at == created_at + 60.0
    body = entry.answer.body
    assert ChatDialect().why_not_stored(body) == ""
    assert body["choices"][0]["message"] == {
        "role": "assistant",
        "content": "It scatters light.",
        "refusal": None,
    }
    usage = ChatDialect().usage(body)
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens) == (
        entry.answer.prompt_tokens,
        entry.answer.completion_tokens,
    )
    assert usage.prompt_tokens > 0
    assert usage.completion_tokens > 0


def test_the_system_prompt_comes_first(writer: GptcacheWriter) -> None:
    writer.add("why?", ("Because.", 0))
    [entry] = read(writer.path, system="Be brief.")
    assert isinstance(entry, Incoming)
    assert [message["role"] for message in entry.request.body["messages"]] == ["system", "user"]
    assert entry.request.body["messages"][0]["content"] == "Be brief."


def test_of_several_answers_the_first_text(writer: GptcacheWriter) -> None:
    writer.add("draw and tell", ("aGk=", 1), ("first", 0), ("second", 0))
    [entry] = read(writer.path)
    assert isinstance(entry, Incoming)
    assert entry.answer.body["choices"][0]["message"]["content"] == "first"


def test_what_is_left_out_and_why(writer: GptcacheWriter) -> None:
    writer.add("kept", ("yes", 0), deleted=None)
    writer.add("gone", ("x", 0), deleted=-1)
    writer.add("draw a cat", ("aGk=", 1))
    writer.add("draw a dog", ("http://127.0.0.1/dog.png", 2))
    writer.add("never answered")
    writer.add(b"\x00\x01", ("x", 0))
    writer.add("  ", ("x", 0))
    writer.add("undated", ("x", 0), created=None)
    writer.add("misdated", ("x", 0), created="yesterday")
    depends = writer.add("what is in the picture?", ("a cat", 0))
    for row in (1, 2):
        writer.run(f"INSERT INTO gptcache_question_dep VALUES ({row}, {depends}, 'image', 'x', 2)")
    found = read(writer.path)
    assert [entry.text for entry in found if isinstance(entry, Incoming)] == ["kept"]
    assert Counter(entry.reason for entry in found if isinstance(entry, Left)) == {
        "deleted in GPTCache": 1,
        "the answer is not text": 2,
        "without an answer": 1,
        "the question is not text": 2,
        "without the time it was made": 2,
        "the question depends on more than its text": 1,
    }


def test_the_file_is_only_read(writer: GptcacheWriter) -> None:
    writer.add("why?", ("Because.", 0))
    before = writer.path.read_bytes()
    read(writer.path)
    assert writer.path.read_bytes() == before
    assert [file.name for file in writer.path.parent.iterdir()] == ["sqlite.db"]


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with pytest.raises(TransferError, match=r"other\.db: expected a file, and there is none"):
        read(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE gptcache_question (id)")
    with pytest.raises(TransferError, match="it has no table gptcache_answer"):
        read(path)
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(TransferError, match="expected the SQLite file of GPTCache: file is not a database"):
        read(path)

"""The SQLite file of GPTCache: its questions and answers as chat completions.

The layout is that of GPTCache 0.1.44, `gptcache/manager/scalar_data/sql_storage.py`
(https://github.com/zilliztech/GPTCache).
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from gateway.cache_transfer import Header, Incoming, Left, TransferError
from policies.requirements import estimated_prompt_tokens, estimated_text_tokens
from policies.types import Answer, Request

_TABLES = ("gptcache_question", "gptcache_answer", "gptcache_question_dep")
_TEXT = 0  # GPTCache's DataType.STR
# Of several answers to a question the first. Its tables have no index on question_id: each is read once.
_QUESTIONS = f"""
SELECT q.id, q.question, q.create_on, coalesce(q.deleted, 0) <> 0, d.question_id IS NOT NULL, t.answer,
       a.question_id IS NOT NULL
FROM gptcache_question AS q
LEFT JOIN (SELECT DISTINCT question_id FROM gptcache_question_dep) AS d ON d.question_id = q.id
LEFT JOIN (SELECT question_id, answer, min(id) FROM gptcache_answer WHERE answer_type = {_TEXT}
           GROUP BY question_id) AS t ON t.question_id = q.id
LEFT JOIN (SELECT DISTINCT question_id FROM gptcache_answer) AS a ON a.question_id = q.id
ORDER BY q.id
"""


class GptcacheFile:
    """Entries of one model and tenant, made of a file that is only read. Close it after use."""

    header: Header | None = None  # it knows no tenants

    def __init__(self, path: Path, *, model: str, tenant: str, system: str | None, ttl_s: float) -> None:
        """`system` is the system prompt that the clients send before the question. Raises TransferError."""
        self._path = path
        self._model = model
        self._tenant = tenant
        self._system = system
        self._ttl_s = ttl_s
        if not path.is_file():
            raise TransferError(f"{path}: expected a file, and there is none")
        try:
            self._connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
            try:
                self.total = self._count()
            except BaseException:
                self._connection.close()
                raise
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def close(self) -> None:
        self._connection.close()

    def entries(self) -> Iterator[Incoming | Left]:
        """Raises TransferError."""
        try:
            with contextlib.closing(self._connection.execute(_QUESTIONS)) as rows:
                for row in rows:
                    yield self._entry(*row)
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def _count(self) -> int:
        rows = self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        missing = set(_TABLES) - {name for (name,) in rows}
        if missing:
            raise TransferError(
                f"{self._path}: expected the SQLite file of GPTCache, and it has no table {min(missing)}"
            )
        [(total,)] = self._connection.execute("SELECT count(*) FROM gptcache_question").fetchall()
        return int(total)

    def _entry(
        self, row: int, question: Any, made: Any, deleted: int, depends: int, answer: Any, answered: int
    ) -> Incoming | Left:
        if deleted:
            return Left(reason="deleted in GPTCache")
        if depends:
            return Left(reason="the question depends on more than its text")
        if not answered:
            return Left(reason="without an answer")
        if not isinstance(answer, str):
            return Left(reason="the answer is not text")
        if not isinstance(question, str) or not question.strip():
            return Left(reason="the question is not text")
        created_at = _seconds(made)
        if created_at is None:
            return Left(reason="without the time it was made")
        messages = [{"role": "user", "content": question}]
        if self._system is not None:
            messages.insert(0, {"role": "system", "content": self._system})
        body = {"model": self._model, "messages": messages}
        return Incoming(
            where=f"{self._path}, question {row}",
            request=Request(api="chat", model=self._model, body=body, tenant=self._tenant),
            text=question,
            answer=_completion(body, answer, created_at, row),
            expires_at=created_at + self._ttl_s,
        )

    def _unreadable(self, error: sqlite3.Error) -> TransferError:
        return TransferError(f"{self._path}: expected the SQLite file of GPTCache: {error}")


def _seconds(made: Any) -> float | None:
    """Of a local time without its zone, as GPTCache writes it."""
    if not isinstance(made, str):
        return None
    try:
        return datetime.fromisoformat(made).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def _completion(request: dict[str, Any], content: str, created_at: float, row: int) -> Answer:
    """GPTCache keeps the text alone: what it took to make is estimated."""
    message = {"role": "assistant", "content": content, "refusal": None}
    prompt_tokens, completion_tokens = estimated_prompt_tokens(request), estimated_text_tokens(content)
    body = {
        "id": f"chatcmpl-gptcache-{row}",
        "object": "chat.completion",
        "created": int(created_at),
        "model": request["model"],
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }
    return Answer(
        body=body,
        model=request["model"],
        created_at=created_at,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
    )

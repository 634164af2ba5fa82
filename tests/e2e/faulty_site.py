"""A gateway under test in front of an upstream that misbehaves, and a plain client."""

from __future__ import annotations

import http.client
import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.clients.background import BackgroundUpstream
from tests.e2e.faulty_upstream import FaultyUpstream
from tests.servers import Server
from tests.upstreams import Received

CLIENT_KEY = "sk-client-9d2e6a55"
ARRIVES_WITHIN_S = 5.0
QUESTIONS = itertools.count()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`complete`: its body came to the end that HTTP says it has."""

    question: str
    status: int
    headers: list[tuple[str, str]]
    body: bytes
    complete: bool = True

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name]

    def json(self) -> dict[str, Any]:
        assert self.all("content-type") == ["application/json"]
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed

    @property
    def data(self) -> list[str]:
        """Of each event."""
        lines = self.body.decode().split("\n\n")
        assert lines.pop() == "", "the last event has no end"
        assert all(line.startswith("data: ") and "\n" not in line for line in lines)
        return [line.removeprefix("data: ") for line in lines]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [json.loads(data) for data in self.data if data != "[DONE]"]

    @property
    def choices(self) -> list[dict[str, Any]]:
        return [choice for event in self.events for choice in event.get("choices", [])]

    @property
    def text(self) -> str:
        return "".join(choice["delta"].get("content") or "" for choice in self.choices)

    @property
    def finishes(self) -> list[str]:
        return [choice["finish_reason"] for choice in self.choices if choice.get("finish_reason")]

    @property
    def usages(self) -> list[dict[str, Any]]:
        return [event["usage"] for event in self.events if event.get("usage")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    server: Server
    upstream: BackgroundUpstream
    faulty: FaultyUpstream

    @contextmanager
    def asking(
        self, model: str, *, raw: bytes = b"", headers: Mapping[str, str] | None = None, **fields: Any
    ) -> Iterator[tuple[http.client.HTTPConnection, str]]:
        """A connection on which a question that no other test asks has been sent. The client leaves at the
        end, whatever has come by then."""
        question = f"question {next(QUESTIONS)}."
        address = urlsplit(self.server.base_url)
        connection = http.client.HTTPConnection(address.netloc, timeout=ARRIVES_WITHIN_S)
        asked = {"model": model, "messages": [{"role": "user", "content": question}], **fields}
        sent = {"content-type": "application/json", "authorization": f"Bearer {CLIENT_KEY}"}
        try:
            path = f"{address.path}/chat/completions"
            connection.request("POST", path, raw or json.dumps(asked).encode(), {**sent, **(headers or {})})
            yield connection, question
        finally:
            connection.close()

    def ask(self, model: str, **more: Any) -> Answer:
        with (
            self.asking(model, **more) as (connection, question),
            connection.getresponse() as response,
        ):
            complete = True
            try:
                body = response.read()
            except http.client.IncompleteRead as error:
                body, complete = error.partial, False
            return Answer(
                question=question,
                status=response.status,
                headers=response.getheaders(),
                body=body,
                complete=complete,
            )

    def stream(self, model: str) -> Answer:
        """With usage asked for, and nothing wrong in what HTTP says of it."""
        answer = self.ask(model, stream=True, stream_options={"include_usage": True})
        assert answer.status == 200
        assert answer.complete
        assert answer.all("content-type")[0].startswith("text/event-stream")
        return answer

    def received(self, question: str) -> list[Received]:
        """What came upstream of a question."""
        return [request for request in self.upstream.received if question.encode() in request.body]

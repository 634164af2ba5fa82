"""A client of the ledger's benchmark: asks one question in one API, and keeps what it saw of the answer."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aiohttp

from benchmarks.ledger_questions import NO_TOKENS, PATHS, Api, Question, Tokens, reference

KEYS = {"web": "lg-web-key-of-the-shop", "app": "lg-app-key-of-the-shop", "lab": "lg-key-of-the-lab"}
TENANTS = {"web": "shop", "app": "shop", "lab": "lab"}
"""By key."""
ANSWER_LIMIT_S = 60.0
Leaving = Literal["", "before", "midway"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request. `leaves`: "before" the answer, once its last attempt is at the upstream; or "midway",
    after the words that the question has before it stalls."""

    question: Question
    api: Api = "chat"
    model: str = "auto"
    pin: str = ""
    key: str = "web"
    stream: bool = False
    include_usage: bool = True
    uncached: str = ""
    leaves: Leaving = ""
    body: bytes | None = None
    """Sent instead of the question."""

    def headers(self) -> dict[str, str]:
        secret = KEYS.get(self.key, self.key)
        named = {"x-api-key": secret} if self.api == "messages" else {"authorization": f"Bearer {secret}"}
        if self.pin:
            named["x-lockgate-route"] = self.pin
        if self.uncached and self.uncached != "temperature":
            named["cache-control"] = self.uncached
        return {**named, "content-type": "application/json"}

    def sent(self) -> bytes:
        return self.body if self.body is not None else json.dumps(self._fields()).encode()

    def _fields(self) -> dict[str, Any]:
        text = self.question.text
        if self.api == "embeddings":
            return {"model": self.model, "input": text}
        fields: dict[str, Any] = {"model": self.model}
        match self.api:
            case "completions":
                fields |= {"prompt": text, "max_tokens": 64}
            case "responses":
                fields |= {"input": text}
            case _:
                fields |= {"messages": [{"role": "user", "content": text}], "max_tokens": 64}
        if self.stream:
            fields["stream"] = True
            if self.include_usage and self.api in ("chat", "completions"):
                fields["stream_options"] = {"include_usage": True}
        if self.uncached == "temperature":
            fields["temperature"] = 1.0 if self.api == "messages" else 1.5
        return fields


@dataclass(slots=True, kw_only=True)
class Seen:
    """What the client saw. `status` is 0 when it left before there was one; `words` of the answer it read;
    `usage` as the answer told, None where it did not; `failed`: the stream broke, or ended in an error."""

    ask: Ask
    request_id: str
    status: int = 0
    cache: str = ""
    words: int = 0
    usage: Tokens | None = None
    ended: bool = False
    failed: bool = False
    left: bool = False
    ended_at: float = 0.0

    @property
    def answered(self) -> bool:
        return self.status == 200 and not self.failed and not self.left

    @property
    def tokens(self) -> Tokens:
        """Of what it got: as the answer told, else by the words of it."""
        if self.answered:
            return self.usage if self.usage is not None else self.ask.question.whole
        return self.ask.question.told(self.words) if self.words else NO_TOKENS

    @property
    def without_picousd(self) -> int:
        """What it would have cost with no gateway: at the large model, and asked anew."""
        return reference(self.ask.model).picousd(self.tokens) if self.tokens.prompt else 0


class Log:
    """The gateway's log as it is written: which requests have ended."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self._ended: set[str] = set()
        self._rest = b""

    async def ended(self, request_id: str) -> None:
        """Waits until it has. A client that leaves does not see when the gateway notices."""
        async with asyncio.timeout(ANSWER_LIMIT_S):
            while request_id not in self._ended:
                *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
                for line in lines:
                    if line.startswith(b"{"):
                        self._ended.add(json.loads(line).get("request_id", ""))
                await asyncio.sleep(0.005)

    def close(self) -> None:
        self._file.close()


@dataclass(slots=True)
class Client:
    """Asks; `seen` is all so far, in the order in which it ended."""

    http: aiohttp.ClientSession
    gateway: str
    upstream: str
    log: Log
    seen: list[Seen] = field(default_factory=list)
    asked: int = 0

    async def ask(self, ask: Ask, begun: asyncio.Barrier | None = None) -> Seen:
        """Sends one request and reads its answer, or leaves it; then it has ended for the gateway too. A
        stream waits at its first word for the others of `begun`."""
        self.asked += 1
        seen = Seen(ask=ask, request_id=f"asked-{self.asked}")
        if ask.leaves == "before":
            await self._leave_before(ask, seen)
        else:
            await self._read(ask, seen, begun)
        if seen.left:
            await self.log.ended(seen.request_id)
        seen.ended_at = time.monotonic()
        self.seen.append(seen)
        return seen

    async def go_on(self, question: Question) -> None:
        """Lets the upstream go on with a stream that paused."""
        await self._upstream(f"/go?{question.id}")

    async def _leave_before(self, ask: Ask, seen: Seen) -> None:
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(self._read(ask, seen))
            await self._upstream(f"/arrived?{ask.question.id}.{len(ask.question.first) + 1}")
            waiting.cancel()
        seen.left = True

    async def _read(self, ask: Ask, seen: Seen, begun: asyncio.Barrier | None = None) -> None:
        url = self.gateway + PATHS[ask.api]
        headers = {**ask.headers(), "x-request-id": seen.request_id}
        async with self.http.post(url, data=ask.sent(), headers=headers) as response:
            seen.status = response.status
            seen.cache = response.headers.get("x-lockgate-cache", "")
            if response.status == 200 and response.content_type == "text/event-stream":
                await self._read_stream(ask, seen, response, begun)
                return
            body = await response.json()
            if response.status == 200:
                seen.usage = usage_in(ask.api, body)
                seen.words = len(text_in(ask.api, body).split())
                seen.ended = True

    async def _read_stream(
        self, ask: Ask, seen: Seen, response: aiohttp.ClientResponse, begun: asyncio.Barrier | None
    ) -> None:
        text = ""
        async for line in response.content:
            if not line.startswith(b"data: "):
                continue
            data = line.removeprefix(b"data: ").strip()
            if data == b"[DONE]":
                seen.ended = True
                continue
            event = json.loads(data)
            if "error" in event or event.get("type") == "error":
                seen.failed = True
                continue
            text += delta_in(ask.api, event)
            if begun is not None and text and not seen.words:
                await begun.wait()
            seen.words = len(text.split())
            seen.usage = usage_of_event(ask.api, event, seen.usage)
            seen.ended |= event.get("type") in ("message_stop", "response.completed")
            if ask.leaves == "midway" and seen.words == ask.question.at:
                seen.left = True
                response.close()
                return
        if not seen.ended:
            seen.failed = True

    async def _upstream(self, path: str) -> None:
        async with self.http.get(self.upstream + path) as response:
            await response.read()


def text_in(api: Api, body: dict[str, Any]) -> str:
    """The text of a whole answer."""
    match api:
        case "chat":
            return str(body["choices"][0]["message"]["content"])
        case "completions":
            return str(body["choices"][0]["text"])
        case "messages":
            return "".join(block["text"] for block in body["content"])
        case "responses":
            return "".join(part["text"] for item in body["output"] for part in item["content"])
        case "embeddings":
            return ""


def delta_in(api: Api, event: dict[str, Any]) -> str:
    """The text of one event of a stream."""
    match api:
        case "chat":
            return "".join(choice["delta"].get("content") or "" for choice in event["choices"])
        case "completions":
            return "".join(choice["text"] for choice in event["choices"])
        case "messages" if event["type"] == "content_block_delta":
            return str(event["delta"]["text"])
        case "responses" if event["type"] == "response.output_text.delta":
            return str(event["delta"])
        case _:
            return ""


def usage_in(api: Api, body: dict[str, Any]) -> Tokens | None:
    """What a whole answer tells."""
    usage = body.get("usage")
    if usage is None:
        return None
    if api == "messages":
        read, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
        return Tokens(
            prompt=usage["input_tokens"] + read + written,
            completion=usage["output_tokens"],
            cached=read,
            written=written,
        )
    names = ("input", "output") if api == "responses" else ("prompt", "completion")
    details = usage.get(f"{names[0]}_tokens_details") or {}
    return Tokens(
        prompt=usage[f"{names[0]}_tokens"],
        completion=usage.get(f"{names[1]}_tokens", 0),
        cached=details.get("cached_tokens", 0),
        written=details.get("cache_write_tokens", 0),
    )


def usage_of_event(api: Api, event: dict[str, Any], known: Tokens | None) -> Tokens | None:
    """What a stream has told, after one more event."""
    match api:
        case "messages":
            holder = event["message"] if event["type"] == "message_start" else event
        case "responses":
            holder = event.get("response") or {}
        case _:
            holder = event
    return usage_in(api, holder) or known

"""The answers of an upstream that misbehaves: the name of the model says how."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator

from tests.upstreams import DONE, USAGE, Received, Reply, completion, delta, frame, frames, stream_reply

TEXTS = ("grün ", "→ ", "日本 ", "🙂🙂", " ß", "é€", "…", "ï, ", "ж")
"""Characters of one to four bytes."""
VENDOR_FIELD = {"region": ["north", 1, None]}
ARGUMENTS = ('{"ci', "ty", '": "Pa', 'ris"', "}")
CUT_BYTES = 7
STEP_TIMEOUT_S = 5.0
MODELS = (
    "well",
    "ends-at-once",
    "cut",
    "calls-tools",
    "steps",
    "drips",
    "hangs",
    "dies",
    "refuses-400",
    "refuses-429",
    "refuses-500",
    "page-502",
    "broken-json",
)


class Stepped(list[bytes]):
    """Pieces of a reply. Each but the first is given out only once `let_on` has been called for it.

    It holds up the whole upstream meanwhile, so nothing else may be asked of it.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        super().__init__(pieces)
        self._allowed = threading.Semaphore(1)

    def let_on(self) -> None:
        self._allowed.release()

    def __iter__(self) -> Iterator[bytes]:
        for piece in super().__iter__():
            if not self._allowed.acquire(timeout=STEP_TIMEOUT_S):
                return
            yield piece


class FaultyUpstream:
    """Answers chat completions. All that is an error quotes the key it was sent. `steps` are the pieces of
    the next answer of the model of this name."""

    def __init__(self) -> None:
        self.steps = Stepped(())

    def __call__(self, request: Received) -> Reply:
        body = request.json()
        fault = body["model"]
        asked = (body.get("stream_options") or {}).get("include_usage", False)
        match fault:
            case "refuses-400" | "refuses-429" | "refuses-500" | "page-502" | "broken-json":
                return failure(fault, request.headers.get("authorization", ""))
            case "hangs" if not body.get("stream"):
                return Reply(status=0, end="hang")
            case "hangs":
                return stream_reply(frames(TEXTS, done=False, finish=None, usage=False), end="hang")
            case "drips":
                return stream_reply(frames(["drop "] * 1000), gap_s=0.02)
            case "dies":
                return stream_reply(frames(TEXTS, done=False, finish=None, usage=False), end="reset")
            case "steps":
                return stream_reply(self.steps)
            case "cut":
                return stream_reply(cut(frames(TEXTS, usage=asked)), gap_s=0.001)
            case "ends-at-once":
                return stream_reply(ending_at_once())
            case "calls-tools":
                return stream_reply(tool_frames())
        headers = {"x-request-id": "of-the-upstream"}
        if body.get("stream"):
            return stream_reply(frames(TEXTS, usage=asked), headers=headers)
        return Reply(headers=headers, pieces=[json.dumps(completion(vendor=VENDOR_FIELD)).encode()])


def refusal(status: int, quoted: str) -> dict[str, object]:
    """The body of an error in OpenAI's shape."""
    error = {"message": f"no: {quoted}", "type": f"kind_{status}", "param": "p", "code": f"code_{status}"}
    return {"error": error}


def failure(fault: str, authorization: str) -> Reply:
    headers = {"x-request-id": "of-the-upstream", "x-ratelimit-of": authorization}
    if fault == "page-502":
        page = f"<html>no gateway for {authorization}</html>".encode()
        return Reply(status=502, content_type="text/html", headers=headers, pieces=[page])
    if fault == "broken-json":
        return Reply(headers=headers, pieces=[f'{{"id": "{authorization}", "choices": ['.encode()])
    status = int(fault.removeprefix("refuses-"))
    if status == 429:
        headers["retry-after"] = "7"
    return Reply(status=status, headers=headers, pieces=[json.dumps(refusal(status, authorization)).encode()])


def cut(events: Iterable[bytes]) -> list[bytes]:
    whole = b"".join(events)
    return [whole[at : at + CUT_BYTES] for at in range(0, len(whole), CUT_BYTES)]


def ending_at_once() -> list[bytes]:
    """The last text, the finish and the usage are one event."""
    *before, last = TEXTS
    begun = frames(before, usage=False, finish=None, done=False)
    return [*begun, frame(delta({"content": last}, "stop", usage=dict(USAGE))), DONE]


def tool_frames() -> list[bytes]:
    """One call of a tool, its arguments in pieces."""

    def call(**fields: object) -> bytes:
        return frame(delta({"tool_calls": [{"index": 0, **fields}]}))

    named = {"name": "weather", "arguments": ""}
    return [
        frame(delta({"role": "assistant", "content": None})),
        call(id="call_1", type="function", function=named),
        *(call(function={"arguments": piece}) for piece in ARGUMENTS),
        frame(delta({}, "tool_calls")),
        DONE,
    ]

"""A model that answers by rule, whatever API it is asked through: what it is asked, and what it says.

Its name says how it behaves: `…-thinks` reasons first, `…-fails-429` answers with that status, `…-dies`
breaks off in the middle of the answer, `…-hangs` says no more after its first words.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.upstreams import Reply, stream_reply

CITIES = ("Paris", "Rome", "Seoul")
REASONING = "Which city?\nLet me think — 생각 중."
JSON_ANSWER: dict[str, Any] = {"city": "Zürich", "inhabitants": 448_664}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A PNG image in base64."""
NOTE = 'a "quoted" 날씨'
"""In every call of a tool: what JSON has to escape."""
SIGNATURE = "c2lnbmVk/+=="

PROMPT_TOKENS = 20
CACHED_TOKENS = 5
"""Of the prompt's."""
COMPLETION_TOKENS = 7
REASONING_TOKENS = 2
"""Of the completion's."""

_FAILS = re.compile(r"-fails-(\d{3})$")
_PIECES_BEFORE_THE_END = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    id: str
    name: str
    arguments: Mapping[str, Any]

    def text(self) -> str:
        return json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """`text` is the user's last message, `results` are what tools gave since: (call id, text). `images` are
    described as `described_image` does."""

    model: str
    system: str = ""
    text: str = ""
    images: Sequence[str] = ()
    tools: Sequence[str] = ()
    results: Sequence[tuple[str, str]] = ()
    wants_json: bool = False
    wants_reasoning: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    reasoning: str = ""
    text: str = ""
    calls: Sequence[ToolCall] = field(default=())


def say(prompt: Prompt) -> Said:
    """What tools gave is repeated; an image described; JSON given where it is asked for; the first tool
    called for each city in a question for the weather; and any other question repeated."""
    thinks = prompt.wants_reasoning or prompt.model.endswith("-thinks")
    reasoning = REASONING if thinks else ""
    if prompt.results and not prompt.images:
        told = "; ".join(f"{call_id} says {text}" for call_id, text in prompt.results)
        return Said(reasoning=reasoning, text=told)
    if prompt.tools and "weather" in prompt.text:
        calls = [
            ToolCall(
                id=f"call_{city.lower()}",
                name=prompt.tools[0],
                arguments={"city": city, "note": NOTE},
            )
            for city in CITIES
            if city in prompt.text
        ]
        return Said(reasoning=reasoning, calls=calls)
    if prompt.images:
        return Said(reasoning=reasoning, text="I see " + " and ".join(prompt.images) + ".")
    if prompt.wants_json:
        return Said(reasoning=reasoning, text=json.dumps(JSON_ANSWER, ensure_ascii=False))
    return Said(reasoning=reasoning, text=echo(prompt.text, prompt.system))


def echo(question: str, system: str = "") -> str:
    """What the model says to a question: with spaces, line breaks and characters of every length."""
    told = f"As told ({system}): " if system else ""
    return f"{told}you asked  “{question}”.\n\n- naïve café\n- 日本語, 한국어 🚀 "


def described_image(media_type: str, data: str) -> str:
    """From its base64, so that the description shows whether all of it came."""
    return f"{media_type} of {len(base64.b64decode(data, validate=True))} bytes"


def cut(text: str, size: int = 7) -> list[str]:
    """As a model streams it: in pieces that know nothing of words."""
    return [text[i : i + size] for i in range(0, len(text), size)]


def failing_status(model: str) -> int | None:
    found = _FAILS.search(model)
    return int(found[1]) if found else None


def error_headers(status: int) -> dict[str, str]:
    """Of an answer with that status, as the providers' have them. 40 s is longer than anybody waits."""
    return {"retry-after": "40", "x-ratelimit-remaining-requests": "0"} if status == 429 else {}


def whole(model: str, answer: Mapping[str, Any]) -> Reply:
    data = json.dumps(answer, ensure_ascii=False).encode()
    if model.endswith("-dies"):
        return Reply(pieces=[data[:40]], end="reset")
    if model.endswith("-hangs"):
        return Reply(pieces=[data[:40]], end="hang")
    return Reply(pieces=[data])


def streamed(model: str, pieces: Sequence[bytes]) -> Reply:
    if model.endswith("-dies"):
        return stream_reply(pieces[:_PIECES_BEFORE_THE_END], end="reset")
    if model.endswith("-hangs"):
        return stream_reply(pieces[:_PIECES_BEFORE_THE_END], end="hang")
    return stream_reply(pieces)

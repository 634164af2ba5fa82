"""Which requests may be answered by similarity at all. The exact layer may still serve the others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_NOW_ENGLISH = re.compile(
    r"\b(?:today|tonight|yesterday|tomorrow|right now|just now|currently|at the moment|these days|"
    r"(?:this|last|next) (?:morning|afternoon|evening|night|week|weekend|month|quarter|year|season)|"
    r"latest|newest|most recent|up[- ]to[- ]date|breaking news|news|"
    r"(?:what(?:'s| is)? (?:the )?(?:time|date|day)\b)|what time is it|"
    r"current (?:price|time|date|president|prime minister|ceo|version|status|rate|year|events?|score|value|"
    r"situation|exchange|temperature)|"
    r"weather|forecast|(?:stock|share|market|gas|oil|gold|bitcoin|house) prices?|price of|exchange rate|"
    r"how much (?:is|does|do|are)\b.{0,60}\b(?:cost|worth)|"
    r"score of|who (?:won|is winning))\b",
    re.IGNORECASE,
)
_NOW_KOREAN = re.compile(
    r"오늘|내일|어제|지금|현재|방금|요즘|최근|최신|이번\s*(?:주|달|해|분기|시즌)|"
    r"날씨|기온|미세먼지|주가|시세|환율|몇\s*시(?:야|지|예요|에요|입니까|인가)|뉴스|속보"
)


def asks_about_now(text: str) -> bool:
    """True for questions whose right answer changes with time: dates, news, weather, prices."""
    return bool(_NOW_ENGLISH.search(text) or _NOW_KOREAN.search(text))


def message_text(content: Any) -> str | None:
    """The text of a message: a string, or a list of text parts. None when it holds anything else."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and content:
        parts = []
        for part in content:
            if not isinstance(part, Mapping) or part.get("type") != "text":
                return None
            text = part.get("text")
            # A part with further fields (cache hints, annotations) is not text alone.
            if not isinstance(text, str) or len(part) != 2:
                return None
            parts.append(text)
        return "\n".join(parts)
    return None


def why_unsafe(body: Mapping[str, Any]) -> tuple[str, str | None]:
    """(reason, None) when a chat request must not be answered by similarity, else ("", the text that is
    compared: the last message's)."""
    messages = body.get("messages") or ()
    if not messages:
        return "no messages", None
    if int(body.get("n") or 1) > 1:
        return "several choices were asked for", None
    if body.get("logprobs") or body.get("top_logprobs"):
        return "log-probabilities were asked for", None
    for message in messages:
        if message.get("role") in ("tool", "function"):
            return "the conversation holds tool results", None
        if message.get("content") is not None and message_text(message["content"]) is None:
            return "the conversation holds images, files or other content that is not text", None
    last = messages[-1]
    if last.get("role") != "user":
        return "the last message is not the user's", None
    text = message_text(last.get("content"))
    if text is None or not text.strip():
        return "the last message has no text", None
    if asks_about_now(text):
        return "the question asks about now", None
    return "", text

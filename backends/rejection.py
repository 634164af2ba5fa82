"""What a server says when it refuses, with every secret taken out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from backends.errors import UpstreamRejected
from backends.forwarding import client_may_see
from policies.types import Api

_REDACTED = "[redacted]"
_NOTHING = r"(?!)"  # a pattern that no text has
_LEAST_SECRET = 4  # shorter values cannot be told from ordinary text


class Redactor:
    """Takes known secrets out of what a server sent back.

    Servers quote a refused key whole, or with its middle starred out ("sk-ab****yz"); both go.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        self._secrets = secrets
        self._pattern: re.Pattern[str] | None = None  # made on first use: most answers are no errors

    def text(self, text: str) -> str:
        if self._pattern is None:
            secrets = sorted({s for s in self._secrets if len(s) >= _LEAST_SECRET}, key=len, reverse=True)
            forms = [re.escape(secret) for secret in secrets]
            forms += [re.escape(secret[:_LEAST_SECRET]) + r"[\w-]*\*{2,}[\w*-]*" for secret in secrets]
            self._pattern = re.compile("|".join(forms) or _NOTHING)
        return self._pattern.sub(_REDACTED, text)

    def json(self, value: Any) -> Any:
        """`value`, parsed JSON of at most 254 levels, with every string in it redacted."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.json(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): self.json(item) for key, item in value.items()}
        return value


def secrets_of(authorization: str | None) -> list[str]:
    """The secrets in an Authorization header's value: all of it, and what follows the scheme."""
    if not authorization:
        return []
    return [authorization, authorization.partition(" ")[2].strip()]


def error_message(value: Any) -> str | None:
    """The message in an error body, in the shapes that OpenAI, vLLM, TGI, TensorRT-LLM and FastAPI use."""
    if isinstance(value, str):
        return value or None
    if not isinstance(value, dict):
        return None
    for key in ("error", "message", "detail"):
        message = error_message(value.get(key))
        if message is not None:
            return message
    return None


def rejection(
    name: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    redactor: Redactor,
    api: Api = "chat",
) -> UpstreamRejected:
    """The error for an answer of `status`. Its `body` is as sent unless something had to be redacted, and
    b"" when it is not a JSON object."""
    parsed = _json_object(body)
    message = None
    if parsed is None:
        body = b""
    else:
        clean = redactor.json(parsed)
        if clean != parsed:
            body = orjson.dumps(clean)
        message = error_message(clean)
    kept = {
        lower: redactor.text(value) for key, value in headers.items() if client_may_see(lower := key.lower())
    }
    text = (
        f"{name} answered {status}: {message}" if message else f"{name} answered {status} without saying why"
    )
    return UpstreamRejected(text, status=status, body=body, headers=kept, api=api)


def _json_object(body: bytes) -> dict[str, Any] | None:
    try:
        parsed = orjson.loads(body)
        orjson.dumps(parsed)  # refuses more than 254 levels: what follows walks it by recursion
    except (orjson.JSONDecodeError, orjson.JSONEncodeError):
        return None
    return parsed if isinstance(parsed, dict) else None

"""A client's JSON against the fields whose type we know, and errors that name the field."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import orjson
from msgspec import Struct

from gateway.errors import RequestError

_Fields = TypeVar("_Fields", bound=Struct)

_PATH = re.compile(r"^(?P<what>.*?)(?: - at `(?P<path>[^`]*)`)?$", re.DOTALL)
_MISSING = re.compile(r"^Object missing required field `(?P<name>[^`]+)`$")


MAX_DEPTH = 240
"""Levels of lists and objects in a body: what can be written again, with room for what a translation adds."""
_WRITABLE_DEPTH = 254
"""orjson reads deeper JSON than it writes."""


def parse_object(raw: bytes) -> dict[str, Any]:
    """The JSON object a body must be. Raises RequestError (400)."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise RequestError(
            f"The body is not valid JSON ({error.msg}; {where}).", code="invalid_json"
        ) from None
    if not isinstance(body, dict):
        raise RequestError("The body must be a JSON object.", code="invalid_json")
    # Few bodies have that many brackets, so few are tried.
    if raw.count(b"{") + raw.count(b"[") > MAX_DEPTH and not _can_be_written(body):
        raise RequestError(f"The body is nested more than {MAX_DEPTH} levels deep.", code="invalid_json")
    return body


def _can_be_written(body: dict[str, Any]) -> bool:
    """Inside of as many levels as orjson allows beyond ours."""
    wrapped: Any = body
    for _ in range(_WRITABLE_DEPTH - MAX_DEPTH):
        wrapped = [wrapped]
    try:
        orjson.dumps(wrapped)
    except orjson.JSONEncodeError:
        return False
    return True


def checked(
    value: Any, fields: type[_Fields], *, path: str = "", choices: Mapping[str, Sequence[str]] | None = None
) -> _Fields:
    """`value` as `fields`. Raises RequestError (400) that names the field, below `path`.

    `choices` has the values that a field of that name may hold, for fields whose type is a Literal:
    msgspec's own error does not list them.
    """
    try:
        return msgspec.convert(value, fields)
    except msgspec.ValidationError as error:
        raise _named(str(error), path, choices or {}) from None


def field_error(field: str | None, problem: str) -> RequestError:
    """`field` is a path ("messages[0].content"); `problem` says what was expected, and what there is."""
    code = "missing_required_parameter" if problem.endswith("missing") else "invalid_value"
    return RequestError(f"{field or 'body'}: {problem}.", param=field, code=code)


def _named(error: str, path: str, choices: Mapping[str, Sequence[str]]) -> RequestError:
    """msgspec's message in the client's terms: the field's path first, then what was expected."""
    match = _PATH.match(error)
    what, below = (match["what"], match["path"] or "") if match else (error, "")
    field = path + below.removeprefix("$").replace("[...]", "")
    field = field.removeprefix(".")
    if missing := _MISSING.match(what):
        field = f"{field}.{missing['name']}" if field else missing["name"]
        return field_error(field, "the field is missing")
    if what.startswith("Invalid enum value"):
        known = ", ".join(choices.get(field.rpartition(".")[2], ())) or "another value"
        what = f"expected one of {known}, got{what.removeprefix('Invalid enum value')}"
    return field_error(field or None, what[:1].lower() + what[1:])

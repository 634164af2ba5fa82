"""What OpenAI's own client makes of answers and events: validated by its types, put together by its code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from openai import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)


def accumulated(events: Iterable[Mapping[str, Any]]) -> Response:
    """The response as the client has it from the deltas alone. Each event must be of one of its types,
    numbered from 0, and fit those before it."""
    state: ResponseStreamState[None] = ResponseStreamState(input_tools=omit, text_format=omit)
    for number, event in enumerate(events):
        parsed = _EVENT.validate_python(event)
        assert parsed.type == event["type"]
        assert parsed.sequence_number == number
        state.handle_event(parsed)
    snapshot = vars(state)["_ResponseStreamState__current_snapshot"]
    assert isinstance(snapshot, Response)
    return snapshot


def texts(response: Response) -> list[str]:
    """What each item that the client puts together from deltas says, in order."""
    said = []
    for item in response.output:
        if item.type == "message":
            said += [part.text for part in item.content if part.type == "output_text"]
        elif item.type == "function_call":
            said.append(item.arguments)
    return said

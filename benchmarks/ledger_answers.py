"""The answers of the ledger's upstream, in each API's two forms. Streams tell usage with every word."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.ledger_questions import Api, Question, Tokens, word

_Fields = dict[str, Any]


def whole(api: Api, question: Question, model: str) -> bytes:
    """A whole answer."""
    text = "".join(word(number) for number in range(question.parts))
    tokens = question.vectors if api == "embeddings" else question.whole
    return json.dumps(_object(api, question, model, text, tokens)).encode()


def opening(api: Api, question: Question, model: str) -> bytes:
    """What a stream has before its first word."""
    told = question.told(0)
    match api:
        case "chat":
            return _data(_chunk(question, model, told, {"role": "assistant", "content": ""}))
        case "completions":
            return b""
        case "messages":
            message = {**_message(question, model), "content": [], "stop_reason": None, "stop_sequence": None}
            usage = {**_anthropic(told), "output_tokens": 1}
            block = {"type": "text", "text": ""}
            return _event("message_start", message={**message, "usage": usage}) + _event(
                "content_block_start", index=0, content_block=block
            )
        case _:
            response = {
                **_response(question, model, ""),
                "status": "in_progress",
                "output": [],
                "usage": None,
            }
            item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress"}
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            at = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
            return (
                _event("response.created", sequence_number=0, response=response)
                + _event(
                    "response.output_item.added",
                    sequence_number=1,
                    output_index=0,
                    item={**item, "content": []},
                )
                + _event("response.content_part.added", sequence_number=2, part=part, **at)
            )


def piece(api: Api, question: Question, model: str, number: int) -> bytes:
    """One word, and the usage with it: where that has an event of its own, it comes before the word."""
    told, text = question.told(number + 1), word(number)
    match api:
        case "chat":
            return _data(_chunk(question, model, told, {"content": text}))
        case "completions":
            return _data(_completion(question, model, text, told))
        case "messages":
            ending = {"stop_reason": None, "stop_sequence": None}
            delta = {"type": "text_delta", "text": text}
            return _event("message_delta", delta=ending, usage=_anthropic(told)) + _event(
                "content_block_delta", index=0, delta=delta
            )
        case _:
            response = {**_response(question, model, ""), "status": "in_progress", "output": []}
            at = {
                "item_id": "msg_1",
                "output_index": 0,
                "content_index": 0,
                "sequence_number": 4 + 2 * number,
            }
            return _event(
                "response.in_progress",
                sequence_number=3 + 2 * number,
                response={**response, "usage": _responses(told)},
            ) + _event("response.output_text.delta", delta=text, logprobs=[], **at)


def ending(api: Api, question: Question, model: str) -> bytes:
    """What a stream has after its last word."""
    tokens, text = question.whole, "".join(word(number) for number in range(question.parts))
    match api:
        case "chat":
            last = _chunk(question, model, tokens, {}, "stop")
            return _data(last) + _data({**last, "choices": []}) + b"data: [DONE]\n\n"
        case "completions":
            last = _completion(question, model, "", tokens, "stop")
            return _data(last) + _data({**last, "choices": []}) + b"data: [DONE]\n\n"
        case "messages":
            delta = {"stop_reason": "end_turn", "stop_sequence": None}
            return (
                _event("content_block_stop", index=0)
                + _event("message_delta", delta=delta, usage=_anthropic(tokens))
                + _event("message_stop")
            )
        case _:
            response = _object("responses", question, model, text, tokens)
            number = 3 + 2 * question.parts
            return _event(
                "response.output_item.done",
                sequence_number=number,
                output_index=0,
                item=response["output"][0],
            ) + _event("response.completed", sequence_number=number + 1, response=response)


def failure(api: Api, status: int) -> bytes:
    """The body of an error."""
    if api == "messages":
        kind = (
            "overloaded_error" if status == 503 else "invalid_request_error" if status == 400 else "api_error"
        )
        return json.dumps({"type": "error", "error": {"type": kind, "message": "as it was told"}}).encode()
    error = {"message": "as it was told", "type": "upstream_error", "param": None, "code": None}
    return json.dumps({"error": error}).encode()


def failing(api: Api) -> bytes:
    """An error in the middle of a stream."""
    body = failure(api, 500)
    return b"event: error\ndata: " + body + b"\n\n" if api == "messages" else b"data: " + body + b"\n\n"


def _object(api: Api, question: Question, model: str, text: str, tokens: Tokens) -> _Fields:
    match api:
        case "chat":
            choice = {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "finish_reason": "stop",
            }
            head = {
                "id": f"chatcmpl-{question.id}",
                "object": "chat.completion",
                "created": 1,
                "model": model,
            }
            return {**head, "choices": [choice], "usage": _openai(tokens)}
        case "completions":
            return _completion(question, model, text, tokens, "stop")
        case "messages":
            message = _message(question, model)
            return {**message, "content": [{"type": "text", "text": text}], "usage": _anthropic(tokens)}
        case "responses":
            return {**_response(question, model, text), "usage": _responses(tokens)}
        case "embeddings":
            row = {"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}
            usage = {"prompt_tokens": tokens.prompt, "total_tokens": tokens.prompt}
            return {"object": "list", "data": [row], "model": model, "usage": usage}


def _chunk(
    question: Question, model: str, tokens: Tokens, delta: _Fields, finish: str | None = None
) -> _Fields:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    head = {"id": f"chatcmpl-{question.id}", "object": "chat.completion.chunk", "created": 1, "model": model}
    return {**head, "choices": [choice], "usage": _openai(tokens)}


def _completion(
    question: Question, model: str, text: str, tokens: Tokens, finish: str | None = None
) -> _Fields:
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    head = {"id": f"cmpl-{question.id}", "object": "text_completion", "created": 1, "model": model}
    return {**head, "choices": [choice], "usage": _openai(tokens)}


def _message(question: Question, model: str) -> _Fields:
    head = {"id": f"msg_{question.id}", "type": "message", "role": "assistant", "model": model}
    return {**head, "stop_reason": "end_turn", "stop_sequence": None}


def _response(question: Question, model: str, text: str) -> _Fields:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    head = {"id": f"resp_{question.id}", "object": "response", "created_at": 1, "model": model}
    return {**head, "status": "completed", "store": False, "output": [item]}


def _openai(tokens: Tokens) -> _Fields:
    return {
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.completion,
        "total_tokens": tokens.prompt + tokens.completion,
        "prompt_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.written},
    }


def _anthropic(tokens: Tokens) -> _Fields:
    return {
        "input_tokens": tokens.prompt - tokens.cached - tokens.written,
        "cache_read_input_tokens": tokens.cached,
        "cache_creation_input_tokens": tokens.written,
        "output_tokens": tokens.completion,
    }


def _responses(tokens: Tokens) -> _Fields:
    return {
        "input_tokens": tokens.prompt,
        "input_tokens_details": {"cached_tokens": tokens.cached, "cache_write_tokens": tokens.written},
        "output_tokens": tokens.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": tokens.prompt + tokens.completion,
    }


def _data(body: _Fields) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _event(kind: str, **fields: Any) -> bytes:
    body = json.dumps({"type": kind, **fields}).encode()
    return b"event: " + kind.encode() + b"\ndata: " + body + b"\n\n"

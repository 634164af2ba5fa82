"""The OpenAPI document: it is one, it has what the application has, and its rules are those of the code."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
import schemathesis

from gateway.admin_access import is_admin
from gateway.admin_forms import feedback, invalidation
from gateway.app import API_PATHS, COUNT_TOKENS_PATH, _others
from gateway.errors import RequestError
from gateway.openapi import document
from gateway.openapi_schemas import REF, schemas
from gateway.raw_endpoint import RawEndpoint
from gateway.settings import Auth, AuthKey, Server, Settings
from gateway.wire import chat
from gateway.wire.completions import CompletionsDialect
from gateway.wire.embeddings import EmbeddingsDialect
from gateway.wire.messages_fields import check_message_body
from gateway.wire.responses import ResponsesDialect
from tests.gateways import running

CHECKS: dict[str, Any] = {
    "ChatRequest": chat.check,
    "CompletionsRequest": CompletionsDialect().check,
    "EmbeddingsRequest": EmbeddingsDialect().check,
    "MessagesRequest": check_message_body,
    "ResponsesRequest": ResponsesDialect().check,
}


ADMIN_CHECKS: dict[str, Any] = {"InvalidateRequest": invalidation, "FeedbackRequest": feedback}


def says(name: str, body: dict[str, Any]) -> bool:
    """Whether the schema of that name allows the body."""
    schema = {"$ref": REF + name, "components": {"schemas": schemas()}}
    return jsonschema_rs.Draft202012Validator(schema).is_valid(body)


def checks(name: str, body: dict[str, Any]) -> bool:
    """Whether the gateway does."""
    try:
        (CHECKS | ADMIN_CHECKS)[name](body)
    except RequestError:
        return False
    return True


def test_it_is_valid() -> None:
    schemathesis.openapi.from_dict(document(Settings())).validate()


async def test_it_has_every_route_of_the_application_and_no_other() -> None:
    async with running() as test:
        gateway = test.gateway
        app = _others(gateway, RawEndpoint(gateway.catalog, gateway.edge))
        routed = {getattr(route, "path", "") for route in app.routes} | {*API_PATHS, COUNT_TOKENS_PATH}
    named = {path.replace("{name:path}", "{id}") for path in routed}
    # What is passed through has no form of its own: the document's description tells of it.
    assert named - {"/v1/{path:path}"} == set(document(Settings())["paths"])


async def test_it_is_served_without_a_key() -> None:
    keys = {"mode": "keys", "keys": {"web": {"sha256": "0" * 64}}}
    async with running(auth=keys) as test:
        response = await test.http.get("/openapi.json")
        assert response.status_code == 200
        assert response.headers["content-type"] == "application/json"
        assert response.json() == json.loads(json.dumps(document(test.gateway.settings)))
        assert (await test.http.get("/v1/models")).status_code == 401


async def test_other_methods_than_those_in_it_are_refused_and_not_passed_through() -> None:
    async with running(server={"unknown_models": {"backend": "fake"}}) as test:
        for path in (*API_PATHS, COUNT_TOKENS_PATH):
            for method in ("GET", "PUT", "PATCH", "DELETE", "TRACE"):
                response = await test.http.request(method, path)
                assert (response.status_code, response.headers["allow"]) == (405, "POST")
        assert (await test.http.post("/openapi.json")).status_code == 405


def test_a_key_is_needed_where_the_settings_say_so() -> None:
    assert {} in document(Settings())["security"]
    keys = Auth(mode="keys", keys={"web": AuthKey(sha256="0" * 64)})
    assert {} not in document(Settings(auth=keys))["security"]


@pytest.mark.parametrize(("token", "security"), [("t", [{"admin": []}]), (None, [{}])])
def test_admin_paths_need_the_admin_token_where_there_is_one(token: str | None, security: list[Any]) -> None:
    paths = document(Settings(server=Server(admin_token=token)))["paths"]
    operations = [operation for path, item in paths.items() if is_admin(path) for operation in item.values()]
    assert len(operations) == 6
    for operation in operations:
        assert operation["security"] == security
        assert operation["responses"].keys() > {"200", "401", "403", "500", "503"}
        assert "www-authenticate" in operation["responses"]["401"]["headers"]
    stats = paths["/admin/stats"]["get"]
    assert stats["responses"]["200"]["content"].keys() == {"application/json", "text/csv"}


async def test_the_headers_of_an_answer_and_of_a_hit_are_in_it() -> None:
    async with running() as test:
        answers = [await test.ask(), await test.ask(), await test.ask("sky why is it so blue?")]
        assert [answer.headers["x-lockgate-cache"] for answer in answers] == [
            "miss", "hit-exact", "hit-semantic",
        ]  # fmt: skip
        operation = document(test.gateway.settings)["paths"]["/v1/chat/completions"]["post"]
    documented = operation["responses"]["200"]["headers"].keys() | {"content-type", "content-length"}
    for answer in answers:
        assert answer.headers.keys() <= documented


HI = {"role": "user", "content": "hi"}
BODIES: dict[str, list[dict[str, Any]]] = {
    "ChatRequest": [
        {"messages": [HI]},
        {"messages": []},
        {"messages": [HI], "temperature": 2.5},
        {"messages": [HI], "unknown": {"any": ["thing"]}},
        {"messages": [HI], "seed": "x"},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "assistant"}]},
        {"messages": [{"role": "user", "content": None, "refusal": ""}]},
        {"messages": [{"role": "user", "tool_calls": [{}]}]},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"messages": [{"role": "tool", "content": "x", "tool_call_id": "c"}]},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {"messages": [{"role": "king", "content": "x"}]},
    ],
    "CompletionsRequest": [
        {},
        {"prompt": None},
        {"prompt": "x"},
        {"prompt": []},
        {"prompt": [1, 2]},
        {"prompt": [[1], []]},
        {"prompt": ["x", 1]},
        {"prompt": "x", "logit_bias": {"1": "x"}},
    ],
    "EmbeddingsRequest": [
        {"input": ["x", "y"]},
        {"input": ["x", [1]]},
        {"input": "x", "stream": True},
        {"input": "x", "stream": False},
        {"input": "x", "dimensions": 0},
    ],
    "MessagesRequest": [
        {"messages": [HI]},
        {"messages": [HI], "max_tokens": 1},
        {"messages": [{"role": "user", "content": [{"type": "text"}]}], "max_tokens": 1},
        {"messages": [{"role": "user", "content": [{}]}], "max_tokens": 1},
        {"messages": [{"role": "user", "content": [{"type": "new"}]}], "max_tokens": 1},
        *(
            {"messages": [{"role": "user", "content": [block]}], "max_tokens": 1}
            for block in (
                {"type": "image", "source": {"type": "base64", "data": "x"}},
                {"type": "image", "source": {"type": "base64", "data": "x", "media_type": "image/png"}},
                {"type": "document", "source": {"type": "new"}},
                {"type": "tool_use", "id": "t", "name": "f"},
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text"}]},
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "x"}]},
            )
        ),
        {"messages": [HI], "max_tokens": 1, "tools": [{"name": "f"}]},
        {"messages": [HI], "max_tokens": 1, "tools": [{"name": "f", "type": "bash_20250124"}]},
        {"messages": [HI], "max_tokens": 1, "tools": [{"name": "f", "type": None, "input_schema": {}}]},
        {"messages": [HI], "max_tokens": 1, "tool_choice": {"type": "tool"}},
        {"messages": [HI], "max_tokens": 1, "tool_choice": {"type": "tool", "name": "f"}},
        {"messages": [HI], "max_tokens": 1, "thinking": {"type": "enabled"}},
        {"messages": [HI], "max_tokens": 1, "thinking": {"type": "disabled"}},
    ],
    "ResponsesRequest": [
        {},
        {"input": "x"},
        {"input": None, "prompt": {"id": "p"}},
        {"input": "x", "previous_response_id": "r", "conversation": "c"},
        {"input": "x", "previous_response_id": None, "conversation": "c"},
        {"input": [HI]},
        {"input": [{**HI, "type": "message"}]},
        {"input": [{"type": "message", "role": "user"}]},
        {"input": [{"id": "item"}]},
        {"input": [{"type": "reasoning"}]},
        {"input": [{"type": 5}]},
        {"input": [{"type": "function_call", "call_id": "c", "name": "f"}]},
        {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]},
        {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
        {"input": [{"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text"}]}]},
        {"input": "x", "tools": [{"type": "function"}]},
        {"input": "x", "tools": [{"type": "web_search"}]},
        {"input": "x", "text": {"format": {"type": "json_schema", "name": "n"}}},
        {"input": "x", "text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}},
        {"input": "x", "truncation": "some"},
    ],
}


ADMIN_BODIES: dict[str, list[dict[str, Any]]] = {
    "InvalidateRequest": [
        {},
        {"dry_run": True},
        {"all": False},
        {"all": True},
        {"all": True, "dry_run": True, "tag": None},
        {"all": True, "tag": "x"},
        {"all": False, "tag": "x"},
        {"all": None, "tag": "x"},
        {"tag": ""},
        {"tag": "x", "tags": "y"},
        {"tenant": "t", "api": "chat", "model": "m", "text": "x"},
        {"api": "chats"},
        {"similar_to": "x"},
        {"similar_to": " \n"},
        {"similar_to": "x", "min_similarity": -1},
        {"similar_to": "x", "min_similarity": 1.01},
        {"tag": "x", "min_similarity": 0.5},
        {"tag": "x", "similar_to": None, "min_similarity": None},
    ],
    "FeedbackRequest": [
        {},
        {"correct": True},
        {"entry": 1},
        {"entry": 1, "correct": False},
        {"entry": 1, "correct": None},
        {"entry": 0, "correct": True},
        {"entry": 2**63, "correct": True},
        {"entry": 1, "request_id": None, "correct": True},
        {"entry": 1, "request_id": "r", "correct": True},
        {"request_id": "r", "correct": True},
        {"request_id": "", "correct": True},
        {"request_id": "r", "correct": True, "more": 1},
    ],
}


@pytest.mark.parametrize("name", [*BODIES, *ADMIN_BODIES])
def test_a_schema_allows_what_the_gateway_does_and_no_more(name: str) -> None:
    bodies = ADMIN_BODIES.get(name) or [{"model": "m", **body} for body in BODIES[name]]
    said = [says(name, body) for body in bodies]
    checked = [checks(name, body) for body in bodies]
    assert said == checked
    assert {True, False} == set(checked)

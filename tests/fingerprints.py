"""Askers of all kinds, and a backend that answers each with the fingerprint of what it was asked."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from backends.protocols import Call
from policies.semantic_safety import message_text
from policies.types import Api
from tests.cache_cases import PATHS, alike, give_vectors, question
from tests.gateway.api_cases import CASES, said, said_in
from tests.gateways import SETTINGS, Running

MODELS = {"auto": ("fake-small", "fake-large"), "one": ("up-one",), "two": ("up-two",)}
"""By what clients ask for, the upstream names it may come from."""
MODEL_TABLES: dict[str, Any] = {
    "models": {
        **SETTINGS["models"],
        "one": {"backend": "fake", "name": "up-one"},
        "two": {"backend": "fake", "name": "up-two"},
    },
}
TEXTS = [
    "tell me about it",
    "please tell me about it",
    "could you tell me about it?",
    "describe it to me",
    "say something on it",
    "what is there to say of it?",
]
"""No two of them show a contrast."""
BY_API = {case.api: case for case in CASES}
FORMS = {
    "chat": "chat.completion",
    "completions": "text_completion",
    "responses": "response",
    "messages": "message",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """All that parts two requests for the same text."""

    tenant: str = "ann"
    api: Api = "chat"
    model: str = "one"
    system: str = ""
    tool: str = ""
    format: str = ""

    @property
    def fingerprint(self) -> str:
        return "|".join((self.tenant, self.model, self.system, self.tool, self.format))

    def body(self, text: str, *, stream: bool) -> dict[str, Any]:
        body = {"model": self.model, "stream": stream, **question(self.api, text, system=self.system)}
        if self.api == "chat":
            body["max_tokens"] = 99  # as messages must have it: the two may differ in the API alone
        if self.tool:
            parameters = {"type": "object", "properties": {}}
            function: dict[str, Any] = {"name": self.tool, "parameters": parameters}
            match self.api:
                case "messages":
                    body["tools"] = [{"name": self.tool, "input_schema": parameters}]
                case "responses":
                    body["tools"] = [{"type": "function", **function}]
                case _:
                    body["tools"] = [{"type": "function", "function": function}]
        if self.format:
            asked = {"type": self.format}
            body |= {"text": {"format": asked}} if self.api == "responses" else {"response_format": asked}
        return body


def everybody() -> list[Asker]:
    """For each of them there is another that differs in one thing only."""
    askers = []
    for tenant, model, api in itertools.product(("ann", "bob"), MODELS, PATHS):
        systems = ("",) if api == "completions" else ("", "You are brief.")
        tools = ("",) if api == "completions" else ("", "weigh")
        formats = ("", "json_object") if api in ("chat", "responses") else ("",)
        askers += [
            Asker(tenant=tenant, api=api, model=model, system=system, tool=tool, format=form)
            for system, tool, form in itertools.product(systems, tools, formats)
        ]
    return askers


def fingerprint(call: Call) -> str:
    """What an `Asker` has, as the backend sees it."""
    body = call.body
    tenant = (call.credential or "").removeprefix("Bearer ")
    model = next(name for name, upstream in MODELS.items() if body["model"] in upstream)
    systems = [
        message_text(one["content"]) or ""
        for one in body["messages"]
        if one["role"] in ("system", "developer")
    ]
    tools = [tool["function"]["name"] for tool in body.get("tools") or ()]
    form = (body.get("response_format") or {}).get("type", "")
    return "|".join((tenant, model, "".join(systems), "".join(tools), form))


def tell_fingerprints(test: Running) -> None:
    give_vectors(test, alike)
    objects = test.backend._objects
    test.backend._objects = lambda call, text: objects(call, fingerprint(call))  # type: ignore[method-assign]


async def ask(
    test: Running, asker: Asker, text: str, *, stream: bool = False, headers: Mapping[str, str] | None = None
) -> httpx.Response:
    """Fails when the reply is not the asker's own."""
    reply = await test.http.post(
        PATHS[asker.api],
        json=asker.body(text, stream=stream),
        headers={"authorization": f"Bearer {asker.tenant}", **(headers or {})},
    )
    if reply.status_code == 504 and "only-if-cached" in str(headers):
        return reply
    assert reply.status_code == 200, reply.text
    if stream:
        told = said_in(test, BY_API[asker.api], reply)
    else:
        body = reply.json()
        assert FORMS[asker.api] in (body.get("object"), body.get("type"))
        told = said(BY_API[asker.api], body)
    assert told == asker.fingerprint, dict(reply.headers)
    return reply

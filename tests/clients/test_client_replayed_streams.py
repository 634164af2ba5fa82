"""Whatever form an answer was kept from, the official clients make of its replay what they made of the
original, and each gets the form it asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import anthropic
import openai
import pytest

from tests.clients import fake_every_kind
from tests.clients.background import BackgroundUpstream
from tests.clients.fake_every_kind import CHATS, COMPLETION, MESSAGES, RESPONSES, USAGE
from tests.servers import serving

CONFIG = """
[cache.policy]
kind = "exact"
[backends.openai]
kind = "openai"
base_url = "{url}"
[backends.anthropic]
kind = "anthropic"
base_url = "{url}"
[models.gpt]
backend = "openai"
name = "gpt"
[models.claude]
backend = "anthropic"
name = "claude"
"""
MISS_THEN_HITS = ["miss", "hit-exact", "hit-exact"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clients:
    """One user's. `seen` has (x-lockgate-cache, content-type) of each answer."""

    openai: openai.OpenAI
    anthropic: anthropic.Anthropic
    seen: list[tuple[str, str]]

    def check(self, forms: list[bool]) -> None:
        """A miss and then hits, each in the form that was asked for."""
        assert [cache for cache, _ in self.seen] == MISS_THEN_HITS
        kinds = [kind.partition(";")[0] for _, kind in self.seen]
        assert kinds == ["text/event-stream" if streamed else "application/json" for streamed in forms]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    home = tmp_path_factory.mktemp("replays")
    path = home / "config.toml"
    with BackgroundUpstream(fake_every_kind.answer) as upstream:
        path.write_text(CONFIG.format(url=upstream.base_url))
        with serving(home, "--config", str(path)) as server:
            yield server.url


@pytest.fixture
def clients(url: str, request: pytest.FixtureRequest) -> Iterator[Clients]:
    """Each test is a user of its own, who finds nothing kept."""
    seen: list[tuple[str, str]] = []

    def note(response: Any) -> None:
        seen.append((response.headers["x-lockgate-cache"], response.headers["content-type"]))

    key = f"sk-{request.node.name.encode().hex()}"
    hooks: Any = {"response": [note]}
    with (
        openai.DefaultHttpxClient(event_hooks=hooks) as http,
        openai.OpenAI(base_url=f"{url}/v1", api_key=key, http_client=http, max_retries=0) as for_openai,
        anthropic.DefaultHttpxClient(event_hooks=hooks) as http_too,
        anthropic.Anthropic(base_url=url, api_key=key, http_client=http_too, max_retries=0) as for_anthropic,
    ):
        yield Clients(openai=for_openai, anthropic=for_anthropic, seen=seen)


FORMS = [[True, True, False], [False, False, True]]
"""Of three requests in a row, whether each asks for a stream."""
EACH_ORDER = pytest.mark.parametrize("forms", FORMS, ids=["kept from a stream", "kept from one object"])


def told(value: Any, *unlike: str) -> Any:
    """As a client has it, without what is null, and without fields that replays have anew or clients add."""
    if isinstance(value, dict):
        return {
            name: told(inner, *unlike)
            for name, inner in value.items()
            if inner is not None and name not in unlike
        }
    return [told(inner, *unlike) for inner in value] if isinstance(value, list) else value


@EACH_ORDER
@pytest.mark.parametrize("kind", CHATS)
def test_a_chat_completion(clients: Clients, kind: str, forms: list[bool]) -> None:
    messages: Any = [{"role": "user", "content": kind}]
    for streamed in forms:
        answer: Any
        if streamed:
            with clients.openai.chat.completions.stream(
                model="gpt", messages=messages, stream_options={"include_usage": True}
            ) as stream:
                answer = stream.get_final_completion()
        else:
            answer = clients.openai.chat.completions.create(model="gpt", messages=messages)
        choices = [choice.to_dict(warnings=False) for choice in answer.choices]
        if streamed:
            for choice in choices:
                calls = choice["message"].get("tool_calls") or []
                assert [call.pop("index") for call in calls] == list(range(len(calls)))
        assert told(choices, "parsed") == told(CHATS[kind])
        assert answer.usage.to_dict() == USAGE
        assert answer.system_fingerprint == "fp"
    clients.check(forms)


@EACH_ORDER
def test_a_completion(clients: Clients, forms: list[bool]) -> None:
    for streamed in forms:
        answer: Any = clients.openai.completions.create(model="gpt", prompt="?", stream=streamed)
        said = {0: "", 1: ""}
        for piece in answer if streamed else [answer]:
            for choice in piece.choices:
                said[choice.index] += choice.text
        assert list(said.values()) == [choice["text"] for choice in COMPLETION["choices"]]
    clients.check(forms)


@EACH_ORDER
@pytest.mark.parametrize("kind", RESPONSES)
def test_a_response(clients: Clients, kind: str, forms: list[bool]) -> None:
    for streamed in forms:
        answer: Any
        if streamed:
            with clients.openai.responses.stream(model="gpt", input=kind, store=False) as stream:
                answer = stream.get_final_response()
        else:
            answer = clients.openai.responses.create(model="gpt", input=kind, store=False)
        output = [item.to_dict(warnings=False) for item in answer.output]
        assert told(output, "parsed", "parsed_arguments") == told(RESPONSES[kind])
        assert (answer.status, answer.usage.total_tokens) == ("completed", 49)
    clients.check(forms)


@EACH_ORDER
@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message(clients: Clients, kind: str, forms: list[bool]) -> None:
    asked: Any = {"model": "claude", "max_tokens": 64, "messages": [{"role": "user", "content": kind}]}
    answers = []
    for streamed in forms:
        answer: Any
        if streamed:
            with clients.anthropic.messages.stream(**asked) as stream:
                answer = stream.get_final_message()
        else:
            answer = clients.anthropic.messages.create(**asked)
        assert told([block.to_dict(warnings=False) for block in answer.content]) == told(
            MESSAGES[kind]["content"]
        )
        assert answer.stop_reason == MESSAGES[kind].get("stop_reason", "end_turn")
        assert answer.stop_sequence == MESSAGES[kind].get("stop_sequence")
        answers.append(answer.usage.to_dict())
    assert answers[0]["cache_read_input_tokens"] == 8
    assert answers[0] == answers[1] == answers[2]
    clients.check(forms)


def test_a_replayed_stream_is_not_one_chunk(clients: Clients) -> None:
    messages: Any = [{"role": "user", "content": "choices of several kinds"}]
    asked: Any = {"model": "gpt", "messages": messages, "stream": True}
    for _ in ("miss", "hit-exact"):
        chunks = list(clients.openai.chat.completions.create(**asked))
        deltas = [(choice.index, choice.delta) for chunk in chunks for choice in chunk.choices]
        assert sum(bool(delta.content) for index, delta in deltas if index == 0) > 5
        assert sum(bool(delta.tool_calls) for index, delta in deltas if index == 1) > 9
        assert sum(bool(delta.refusal) for index, delta in deltas if index == 2) > 5

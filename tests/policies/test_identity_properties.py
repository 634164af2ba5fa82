"""Two requests share a hash exactly when they ask the same: 100,000 pairs against an oracle of its own.

The oracle compares requests as values and knows of the fields without meaning from docs/cache-identity.md
alone. Each request is the one before it with a few changes, so that most pairs are near misses.
"""

from __future__ import annotations

import hashlib
import random
import re
import subprocess
import sys
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import orjson
import pytest
from msgspec.structs import replace

from gateway.errors import RequestError
from gateway.parts import dialects
from policies.identity import exact_key, identify
from policies.types import Api, Request

ROOT = Path(__file__).resolve().parents[2]
PAIRS_PER_API = 20_000
SECRET = b"s" * 32
APIS: tuple[Api, ...] = get_args(Api)
DIALECTS = dialects()


def documented() -> dict[str, frozenset[str]]:
    page = (ROOT / "docs" / "cache-identity.md").read_text("utf-8")
    section = page.split("## Fields that do not change the answer")[1].split("##")[0]
    rows = re.findall(r"^\| (\w+) \| (.+) \|$", section, re.MULTILINE)
    return {api: frozenset(re.findall(r"`(\w+)`", fields)) for api, fields in rows if "`" in fields}


MEANINGLESS = documented()

# ---------------------------------------------------------------- the oracle


def value_of(json: Any) -> Any:
    """Equal for two JSON values exactly when they are one value: order of keys apart, type and all."""
    if isinstance(json, dict):
        return "object", frozenset((name, value_of(item)) for name, item in json.items())
    if isinstance(json, list):
        return "list", tuple(map(value_of, json))
    return type(json).__name__, repr(json)


def asked(request: Request, body: dict[str, Any]) -> Any:
    rest = {name: item for name, item in body.items() if name not in MEANINGLESS[request.api]}
    frame = (request.api, request.tenant, request.model, request.route_pin)
    return frame, value_of(dict(request.variant)), value_of(rest)


def copied(json: Any) -> Any:
    return orjson.loads(orjson.dumps(json))


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def question(request: Request) -> tuple[str, dict[str, Any]]:
    """The text of a request's last turn, and the body without the last part of it."""
    body = copied(request.body)
    if request.api == "completions":
        prompt = body.pop("prompt")
        return (prompt if isinstance(prompt, str) else prompt[0]), body
    if request.api == "responses":
        if isinstance(body["input"], str):
            return body.pop("input"), body
        last = [item for item in body["input"] if item.get("type") != "reasoning"][-1]
    else:
        last = body["messages"][-1]
    content = last["content"]
    text = text_of(content)
    if request.api != "messages":
        del last["content"]
        if not isinstance(content, str) and len(content) > 1:
            last["content"] = content[:-1]
    elif isinstance(content, str):
        last["content"] = ""
    else:
        content[-1]["text"] = ""
    return text, body


# ---------------------------------------------------------------- requests and their changes

CHAT: list[dict[str, Any]] = [
    {"messages": [{"role": "user", "content": "What is HTTP?"}], "temperature": 0},
    {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Cancel order 1?", "name": "ann"},
            {"role": "assistant", "content": "Shall I?"},
            {"role": "user", "content": [{"type": "text", "text": "yes"}, {"type": "text", "text": "é"}]},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"required": ["a", "b"]}}}],
        "stop": ["x", "y"],
    },
]
BODIES: dict[Api, list[dict[str, Any]]] = {
    "chat": CHAT,
    "completions": [
        {"prompt": "Once upon", "max_tokens": 9},
        {"prompt": ["Café"], "stop": ["a", "b"], "seed": 1},
    ],
    "responses": [
        {"input": "What is HTTP?", "store": True},
        {
            "input": [
                {"role": "user", "content": "Cancel order 1?"},
                {"type": "message", "role": "assistant", "content": "Shall I?"},
                {"role": "user", "content": [{"type": "input_text", "text": "yes"}]},
                {"type": "reasoning", "id": "r"},
            ],
            "instructions": "Be brief.",
            "text": {"format": {"type": "text"}, "verbosity": "low"},
        },
    ],
    "messages": [
        {"messages": [{"role": "user", "content": "What is HTTP?"}], "max_tokens": 5, "temperature": 1},
        {
            "system": [{"type": "text", "text": "Be brief."}],
            "messages": [
                {"role": "user", "content": "Cancel order 1?"},
                {"role": "assistant", "content": [{"type": "text", "text": "Shall I?"}]},
                {"role": "user", "content": [{"type": "text", "text": "yes"}, {"type": "text", "text": "é"}]},
            ],
            "max_tokens": 5,
            "stop_sequences": ["x", "y"],
        },
    ],
    "embeddings": [{"input": "What is HTTP?"}, {"input": ["a", "é", "b"], "dimensions": 8}],
}
KNOWN: dict[str, list[Any]] = {
    "temperature": [0, 0.0, 0.5, 1, 1.0, None],
    "top_p": [1, 1.0, 0.9],
    "seed": [0, 1, 2],
    "max_tokens": [1, 5, 9],
    "max_completion_tokens": [5, None],
    "n": [1, 2, None],
    "stop": ["x", ["x"], ["x", "y"], ["y", "x"]],
    "logit_bias": [{"5": 1}, {"5": 1.0}, {"6": 1}],
    "tools": [[], [{"type": "function", "name": "f", "function": {"name": "f"}, "input_schema": {}}]],
    "response_format": [{"type": "json_object"}, {"type": "text"}],
    "reasoning_effort": ["low", "high"],
    "store": [True, False],
    "logprobs": [None, False],
    "prediction": [{"type": "content", "content": "x"}],
    "instructions": ["Be brief.", "Be long."],
    "system": ["Be brief.", [{"type": "text", "text": "Be brief."}]],
    "thinking": [{"type": "disabled"}],
    "dimensions": [8, 16],
    "suffix": ["a", ""],
    "parallel_tool_calls": [True, False],
}
WHO: dict[str, list[Any]] = {
    "stream": [True, False],
    "stream_options": [{"include_usage": True}],
    "store": [True, False],
}
TWINS = [
    "é",
    unicodedata.normalize("NFD", "é"),
    "É",
    "ﬁ",
    "fi",
    "a",
    "a ",
    " a",
    "",
    "1",
    "가",
    "\u1100\u1161",
    '"],"',
]

Slot = tuple[Any, Any]
Change = Callable[[random.Random, Request, dict[str, Any]], Request | None]


def slots(value: Any) -> Iterator[Slot]:
    """Every place in a body where a value stands: its container, and its name or index there."""
    for place in value if isinstance(value, dict) else range(len(value)):
        yield value, place
        if isinstance(value[place], dict | list):
            yield from slots(value[place])


def any_slot(rng: random.Random, body: dict[str, Any], kind: type | tuple[type, ...]) -> Slot | None:
    found = [(at, place) for at, place in slots(body) if isinstance(at[place], kind)]
    return rng.choice(found) if found else None


def set_meaningless(rng: random.Random, request: Request, body: dict[str, Any]) -> None:
    name = rng.choice(sorted(MEANINGLESS[request.api]))
    values: list[Any] = [{"user_id": "x"}, {}] if name == "metadata" else WHO.get(name, ["x", "y"])
    body[name] = copied(rng.choice(values))


def drop_meaningless(rng: random.Random, request: Request, body: dict[str, Any]) -> None:
    for name in MEANINGLESS[request.api]:
        body.pop(name, None)


def set_known(rng: random.Random, request: Request, body: dict[str, Any]) -> None:
    name = rng.choice(sorted(KNOWN))
    body[name] = copied(rng.choice(KNOWN[name]))


def drop_known(rng: random.Random, request: Request, body: dict[str, Any]) -> None:
    name = rng.choice(sorted(body))
    if name in KNOWN:
        del body[name]


def set_unknown(rng: random.Random, request: Request, body: dict[str, Any]) -> None:
    body[rng.choice(["a_field_of_next_year", "Temperature", "stream ", "x"])] = rng.choice(
        [None, 0, [], {}, "x"]
    )


def set_nested(rng: random.Random, request: Request, body: dict[str, Any]) -> None:
    """Names that mean nothing at the top do below it."""
    if slot := any_slot(rng, body, dict):
        slot[0][slot[1]][rng.choice(["user", "stream", "metadata", "x"])] = rng.choice(["x", True])


def turn_keys(rng: random.Random, request: Request, body: dict[str, Any]) -> None:
    for at in [body, *(at[place] for at, place in slots(body) if isinstance(at[place], dict))]:
        items = list(at.items())
        rng.shuffle(items)
        at.clear()
        at.update(items)


def retype(rng: random.Random, request: Request, body: dict[str, Any]) -> None:
    if slot := any_slot(rng, body, (int, float, bool)):
        value = slot[0][slot[1]]
        slot[0][slot[1]] = rng.choice([int(value), float(value), bool(value), str(value), -0.0, None])


def retext(rng: random.Random, request: Request, body: dict[str, Any]) -> None:
    slot = any_slot(rng, body, str)
    if slot and slot[1] not in ("role", "type", "model"):
        slot[0][slot[1]] = rng.choice(TWINS)


def renormalise(rng: random.Random, request: Request, body: dict[str, Any]) -> None:
    if slot := any_slot(rng, body, str):
        slot[0][slot[1]] = unicodedata.normalize(rng.choice(["NFC", "NFD", "NFKC"]), slot[0][slot[1]])


def relist(rng: random.Random, request: Request, body: dict[str, Any]) -> None:
    slot = any_slot(rng, body, list)
    if slot and (items := slot[0][slot[1]]):
        match rng.randrange(3):
            case 0:
                rng.shuffle(items)
            case 1 if len(items) < 6:
                items.append(copied(rng.choice(items)))
            case _ if len(items) > 1:
                items.pop(rng.randrange(len(items)))


def ask_otherwise(rng: random.Random, request: Request, body: dict[str, Any]) -> None:
    """Another last text, in the form that it has."""
    if request.api == "completions":
        body["prompt"] = rng.choice(["Once", "Twice", ["Once"]])
        return
    turns = body.get("messages") or body.get("input")
    if isinstance(turns, str):
        body["input"] = rng.choice(TWINS)
    elif turns and isinstance(turns[-1], dict) and "content" in turns[-1]:
        content = turns[-1]["content"]
        if isinstance(content, str):
            turns[-1]["content"] = rng.choice(TWINS)
        elif content and isinstance(content[-1], dict):
            content[-1]["text"] = rng.choice(TWINS)


def come_from_another(rng: random.Random, request: Request, body: dict[str, Any]) -> Request:
    match rng.randrange(4):
        case 0:
            return replace(request, tenant=rng.choice(["acme", "rival", "", "acme "]))
        case 1:
            return replace(request, model=rng.choice(["auto", "large", "Auto"]))
        case 2:
            return replace(request, route_pin=rng.choice([None, "small", "large"]))
    headers: list[dict[str, str]] = [{}, {"openai-beta": "a"}, {"openai-beta": "b"}, {"anthropic-beta": "a"}]
    return replace(request, variant=rng.choice(headers))


CHANGES: list[Change] = [
    *(set_meaningless, drop_meaningless, turn_keys) * 2,
    *(set_known, drop_known, set_unknown, set_nested, retype, retext, renormalise, relist),
    *(ask_otherwise,) * 3,
    come_from_another,
]


def start(rng: random.Random, api: Api) -> Request:
    body = {"model": "auto", **copied(rng.choice(BODIES[api]))}
    return Request(api=api, model="auto", body=body, tenant="acme")


def changed(rng: random.Random, request: Request) -> Request:
    body = copied(request.body)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        request = rng.choice(CHANGES)(rng, request, body) or request
    return replace(request, body=body)


def walk(api: Api, count: int) -> Iterator[tuple[Request, Request]]:
    """Pairs of requests that differ by a few changes."""
    rng = random.Random(f"{api} 7")
    before = start(rng, api)
    for step in range(count):
        after = changed(rng, before)
        yield before, after
        before = start(rng, api) if step % 12 == 0 or len(after.body) > 12 else after


def partition_and_text(request: Request, secret: bytes = SECRET) -> tuple[bytes, str | None]:
    dialect = DIALECTS.of(request.api)
    chat = dialect.chat_view(request.body)
    found = identify(
        request, secret, request.tenant, b"", chat=chat, without_question=dialect.without_question
    )
    return found.partition, found.text


# ---------------------------------------------------------------- the properties


class Seen:
    """A request as the oracle has it, beside its hashes. `rest` and `partition` are None for what no client
    can send, for its dialect refuses it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.asked = asked(request, dict(request.body))
        self.key = exact_key(request, SECRET, request.tenant)
        self.rest: Any = None
        self.partition: bytes | None = None
        self.text: str | None = None
        with suppress(RequestError):
            DIALECTS.of(request.api).check(dict(request.body))
            self.partition, self.text = partition_and_text(request)
            self.rest = self.asked
            if self.text is not None:
                last, body = question(request)
                assert self.text == last
                self.rest = asked(request, body)


@pytest.mark.parametrize("api", APIS)
def test_two_requests_share_a_hash_exactly_when_they_ask_the_same(api: Api) -> None:
    """An exact key when they differ in nothing that changes the answer; a partition when they differ in their
    last texts alone."""
    same = same_but_text = compared = 0
    other: Seen | None = None
    for before, after in walk(api, PAIRS_PER_API):
        one = other if other is not None and other.request is before else Seen(before)
        other = Seen(after)
        assert (one.key == other.key) == (one.asked == other.asked), (before, after)
        same += one.key == other.key
        if one.partition is not None and other.partition is not None:
            compared += 1
            assert (one.partition == other.partition) == (one.rest == other.rest), (before, after)
            same_but_text += one.partition == other.partition and one.text != other.text
    assert PAIRS_PER_API * 0.2 < same < PAIRS_PER_API * 0.8
    assert compared > PAIRS_PER_API * 0.3
    assert api == "embeddings" or same_but_text > PAIRS_PER_API * 0.02


def test_embeddings_are_never_compared() -> None:
    assert all(Seen(request).text is None for _, request in walk("embeddings", 1000))


def test_a_body_under_another_api_is_another_request() -> None:
    for body in (CHAT[0], {"input": "a"}, {"prompt": "a"}):
        requests = [Request(api=api, model="m", body={"model": "m", **body}, tenant="acme") for api in APIS]
        assert len({exact_key(request, SECRET, "acme") for request in requests}) == len(APIS)


@pytest.mark.parametrize("values", [[1, 1.0, True, "1"], [0, 0.0, -0.0, False, None, "", [], {}]])
def test_values_of_two_types_are_two_values(values: list[Any]) -> None:
    """Also 1 and 1.0: to take them for two costs a hit, and no upstream need agree that they are one."""
    bodies = [{"model": "m", "prompt": "a", "x": value} for value in values]
    requests = [Request(api="completions", model="m", body=body, tenant="acme") for body in bodies]
    assert len({exact_key(request, SECRET, "acme") for request in requests}) == len(values)
    assert len({partition_and_text(request)[0] for request in requests}) == len(values)


@pytest.mark.parametrize("api", APIS)
def test_no_hash_is_shared_between_secrets(api: Api) -> None:
    rng = random.Random(3)
    request = start(rng, api)
    secrets = [rng.randbytes(32) for _ in range(50)]
    assert len({exact_key(request, secret, "acme") for secret in secrets}) == len(secrets)
    assert len({partition_and_text(request, secret)[0] for secret in secrets}) == len(secrets)


def digest(count: int = 200) -> str:
    """Of the hashes of `count` requests of each API."""
    total = hashlib.sha256()
    for api in APIS:
        for _, request in walk(api, count):
            total.update(exact_key(request, SECRET, request.tenant))
        total.update(partition_and_text(start(random.Random(5), api))[0])
    return total.hexdigest()


@pytest.mark.parametrize("seed", ["0", "1", "4294967295"])
def test_hashes_are_equal_whatever_the_seed_of_pythons_own(seed: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", "from tests.policies.test_identity_properties import digest; print(digest())"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == digest()

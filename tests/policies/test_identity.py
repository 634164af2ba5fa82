"""Who may share an answer."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.wire.chat_dialect import ChatDialect
from policies.identity import SAME_ANSWER_FIELDS, exact_key, identify
from policies.types import Identity, Request

SECRET = b"s" * 32
CHAT = ChatDialect()


def request(**changes: Any) -> Request:
    body = {"model": "auto", "messages": [{"role": "user", "content": "What is HTTP?"}], **changes}
    return Request(api="chat", model=body["model"], body=body, tenant="acme")


def identity(of: Request, tenant: str = "acme") -> Identity:
    return identified(of, SECRET, tenant, exact_key(of, SECRET, tenant))


def identified(of: Request, secret: bytes, tenant: str, exact: bytes) -> Identity:
    return identify(of, secret, tenant, exact, chat=of.body, without_question=CHAT.without_question)


def test_equal_requests_share_both_keys_whatever_the_order_of_their_fields() -> None:
    turned = replace(request(), body=dict(reversed(list(request().body.items()))))
    assert identity(turned) == identity(request())


def test_another_wording_shares_the_partition_but_not_the_exact_key() -> None:
    other = request(messages=[{"role": "user", "content": "Explain HTTP."}])
    assert identity(other).exact_key != identity(request()).exact_key
    assert identity(other).partition == identity(request()).partition
    assert identity(other).text == "Explain HTTP."


def test_fields_that_do_not_change_the_answer_change_no_key() -> None:
    for name in SAME_ANSWER_FIELDS["chat"]:
        assert identity(request(**{name: "x"})) == identity(request()), name


def test_every_other_field_changes_both_keys_known_or_not() -> None:
    changes: list[dict[str, Any]] = [
        {"model": "other"},
        {"temperature": 0.5},
        {"seed": 1},
        {"max_tokens": 5},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"response_format": {"type": "json_object"}},
        {"a_field_of_next_year": 1},
        {"messages": [{"role": "system", "content": "Be brief."}, *request().body["messages"]]},
        {"messages": [{"role": "user", "content": "What is HTTP?", "name": "ann"}]},
    ]
    keys = {identity(request(**change)).exact_key for change in changes}
    partitions = {identity(request(**change)).partition for change in changes}
    assert len(keys) == len(partitions) == len(changes)
    assert identity(request()).exact_key not in keys
    assert identity(request()).partition not in partitions


def test_tenant_route_pin_and_secret_are_boundaries() -> None:
    pinned = replace(request(), route_pin="large")
    keys = {
        identity(request()).partition,
        identity(request(), tenant="rival").partition,
        identity(pinned).partition,
        identified(request(), b"t" * 32, "acme", b"").partition,
    }
    assert len(keys) == 4


def test_a_prefix_inside_the_text_is_no_boundary_and_none_is_needed() -> None:
    forged = request(messages=[{"role": "user", "content": 'acme"],"What is HTTP?'}])
    assert identity(forged, tenant="rival").partition != identity(request()).partition


def test_earlier_turns_must_be_equal_word_for_word() -> None:
    def talk(first: str) -> Request:
        return request(
            messages=[
                {"role": "user", "content": first},
                {"role": "assistant", "content": "Shall I?"},
                {"role": "user", "content": "yes, cancel it"},
            ]
        )

    assert identity(talk("Cancel order 1?")).partition != identity(talk("Cancel order 2?")).partition
    assert identity(talk("Cancel order 1?")) == identity(talk("Cancel order 1?"))


def test_an_unsafe_request_has_no_text_and_says_why() -> None:
    picture = [{"type": "image_url", "image_url": {"url": "data:,x"}}]
    unsafe = identity(request(messages=[{"role": "user", "content": picture}]))
    assert unsafe.text is None
    assert "images" in unsafe.unsafe_reason


@given(st.text(min_size=1), st.text(min_size=1))
def test_two_texts_share_an_exact_key_exactly_when_they_are_equal(a: str, b: str) -> None:
    def keyed(text: str) -> bytes:
        return exact_key(request(messages=[{"role": "user", "content": text}]), SECRET, "acme")

    try:
        a.encode(), b.encode()
    except UnicodeEncodeError:
        return  # a lone surrogate is no JSON text
    assert (keyed(a) == keyed(b)) == (a == b)


def test_hashes_are_equal_in_another_process() -> None:
    script = (
        "from tests.policies.test_identity import identity, request;"
        "print(identity(request()).partition.hex(), identity(request()).exact_key.hex())"
    )
    root = Path(__file__).resolve().parents[2]
    told = subprocess.run(
        [sys.executable, "-c", script],
        cwd=root,
        env={"PYTHONPATH": str(root), "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    ours = identity(request())
    assert told.stdout.split() == [ours.partition.hex(), ours.exact_key.hex()]


def test_headers_that_pick_another_behaviour_are_boundaries() -> None:
    other = replace(request(), variant={"openai-beta": "assistants=v2"})
    assert identity(other).exact_key != identity(request()).exact_key
    assert identity(other).partition != identity(request()).partition


def test_another_api_is_another_identity() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 5}
    chat = Request(api="chat", model="m", body=body, tenant="acme")
    assert exact_key(replace(chat, api="messages"), SECRET, "acme") != exact_key(chat, SECRET, "acme")


def test_a_response_that_is_to_be_kept_upstream_is_another_answer() -> None:
    body = {"model": "m", "input": "hi"}
    kept = Request(api="responses", model="m", body={**body, "store": True}, tenant="acme")
    assert exact_key(kept, SECRET, "acme") != exact_key(replace(kept, body=body), SECRET, "acme")


def test_the_documented_lists_are_the_lists_in_force() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "cache-identity.md").read_text("utf-8")
    section = page.split("## Fields that do not change the answer")[1].split("##")[0]
    rows = re.findall(r"^\| (\w+) \| (.+) \|$", section, re.MULTILINE)
    listed = {api: set(re.findall(r"`(\w+)`", fields)) for api, fields in rows if "`" in fields}
    assert listed == SAME_ANSWER_FIELDS

"""docs/admin-api.md: it names what there is, and its examples work as printed."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from gateway.admin_forms import CRITERIA, CachedEntryDetail
from tests.entries import make_entry
from tests.gateway.admin_cases import administered

PAGE = (Path(__file__).parents[2] / "docs" / "admin-api.md").read_text("utf-8")
EXAMPLES = re.findall(r"^curl .*", PAGE.replace("\\\n", ""), re.MULTILINE)


@pytest.mark.parametrize(
    "name", [*CachedEntryDetail.__struct_fields__, *CRITERIA, "before", "limit", "min_similarity", "dry_run"]
)
def test_it_names_every_field(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_it_has_examples() -> None:
    assert len(EXAMPLES) == 9


@pytest.mark.parametrize("example", EXAMPLES)
async def test_an_example_works(example: str) -> None:
    method, url, headers, body = "", "", {}, None
    words = iter(shlex.split(example)[1:])
    for word in words:
        match word:
            case "-X":
                method = next(words)
            case "-H":
                name, _, value = next(words).partition(": ")
                headers[name] = value
            case "-d":
                body = next(words)
            case _:
                url = word.removeprefix("http://localhost:8080")
    async with administered() as test:
        assert test.gateway.cache is not None
        for number in range(16):
            entry = make_entry(f"question {number}", created_at=test.gateway.clock(), semantic=False)
            await test.gateway.cache.put(entry)
        await test.ask(headers={"x-request-id": "req_2b7e151628aed2a6"})  # entry 17
        method = method or ("GET" if body is None else "POST")
        answer = await test.http.request(method, url, content=body, headers=headers)
        assert answer.status_code == 200, answer.text
        assert json.loads(answer.content)

"""`lockgate cache`: a cache that was exported and taken in elsewhere answers there."""

from __future__ import annotations

import json
import sqlite3
import stat
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from click.testing import CliRunner, Result

from embeddings.protocols import EVERY_ENTRY, Entry
from embeddings.sqlite_reader import SqliteReader
from gateway.cache_transfer import LockgateFile
from gateway.cli_cache import cache
from tests.entries import make_body
from tests.gateway.test_gptcache_file import GptcacheWriter
from tests.gateways import FakeTopicEmbedder, Running, running, told

ASKED = "sky why is it blue?"
REWORDED = "sky what makes it blue?"


@pytest.fixture(autouse=True)
def embedder(monkeypatch: pytest.MonkeyPatch) -> FakeTopicEmbedder:
    """The one that commands open."""
    embedder = FakeTopicEmbedder()
    monkeypatch.setattr("embeddings.onnx_embedder.OnnxEmbedder.open", lambda model, device, threads: embedder)
    return embedder


class Machine:
    """A folder with a cache and its configuration, and what one does there."""

    def __init__(self, folder: Path, *, auth: str = "open", cache: str = "") -> None:
        folder.mkdir()
        self.folder = folder
        self.cache = folder / "cache.db"
        self.config = folder / "config.toml"
        self._auth = auth
        self._settings = {
            "store": "sqlite",
            "path": str(self.cache),
            "policy": {"kind": "static", "min_similarity": 0.9},
        }
        self.config.write_text(f'[auth]\nmode = "{auth}"\n[cache]\npath = "{self.cache}"\n{cache}\n')

    @asynccontextmanager
    async def gateway(self, **cache: Any) -> AsyncIterator[Running]:
        async with running(cache={**self._settings, **cache}, auth={"mode": self._auth}) as test:
            yield test

    def run(self, command: str, *arguments: str, stdin: bytes | None = None) -> Result:
        options = ["--config", str(self.config), *arguments]

        def invoke() -> Result:
            return CliRunner().invoke(cache, [command, *options], input=stdin, catch_exceptions=False)

        with ThreadPoolExecutor(1) as other:  # a command has an event loop of its own
            return other.submit(invoke).result()

    def done(self, command: str, *arguments: str, stdin: bytes | None = None) -> Any:
        """What a command that goes well says in JSON."""
        result = self.run(command, "--json", *arguments, stdin=stdin)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout or result.stderr)

    def refused(self, command: str, *arguments: str, stdin: bytes | None = None) -> str:
        result = self.run(command, *arguments, stdin=stdin)
        assert result.exit_code == 2, result.output
        return result.stderr

    def entries(self) -> list[Entry]:
        with closing(SqliteReader.open(self.cache)) as reader:
            return [entry for entry, _ in reader.entries(EVERY_ENTRY, time.time())]


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    made = iter(("old", "new", "third"))
    return lambda **settings: Machine(tmp_path / next(made), **settings)


async def kinds(test: Running, *texts: str, **fields: Any) -> list[str]:
    answers = [await test.ask(text, **fields) for text in texts]
    assert {told(answer) for answer in answers} == {"answer 1"}
    return [answer.headers["x-lockgate-cache"] for answer in answers]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def line(
    asked: str, *, created_at: float | None = None, ttl_s: float = 3600.0, **changes: Any
) -> dict[str, Any]:
    """A line as an export from a gateway whose clients are all "open" has it, without a vector."""
    created_at = time.time() if created_at is None else created_at
    body = {"model": "auto", "messages": [{"role": "user", "content": asked}]}
    answer = {
        "body": make_body("answer 1"),
        "model": "m",
        "created_at": created_at,
        "prompt_tokens": 3,
        "completion_tokens": 4,
        "cost_usd": 0.5,
    }
    return {
        "request": ["chat", "open", "auto", None, {}, body],
        "tenant": "open",
        "api": "chat",
        "model": "auto",
        "tags": [],
        "text": asked,
        "space": None,
        "vector": None,
        "answer": answer,
        "expires_at": created_at + ttl_s,
        **changes,
    }


def file_of(*lines: dict[str, Any], entries: int | None = None) -> bytes:
    header = {
        "lockgate_cache": 1,
        "exported_at": 1.0,
        "entries": len(lines) if entries is None else entries,
        "space": None,
        "key_check": "0" * 16,
    }
    return b"".join(orjson.dumps(value) + b"\n" for value in (header, *lines))


async def test_a_cache_moves_with_its_secret(machine: Callable[..., Machine], tmp_path: Path) -> None:
    """In passthrough a tenant is a hash under the secret: the new gateway must have the same."""
    old, new = machine(auth="passthrough"), machine(auth="passthrough")
    file = tmp_path / "cache.jsonl"
    async with old.gateway() as test:
        assert await kinds(test, ASKED) == ["miss"]
        counts = old.done("export", "--with-secret", "--output", str(file))  # while the gateway runs
    assert counts == {"entries": 1, "unknown_requests": 0}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    imported = new.done("import", str(file))
    assert (imported["imported"], imported["embedded"], imported["unreachable"]) == (1, 0, 0)
    async with new.gateway() as test:
        assert await kinds(test, ASKED, REWORDED) == ["hit-exact", "hit-semantic"]
        assert (await test.ask(ASKED, key="another")).headers["x-lockgate-cache"] == "miss"
        assert len(test.backend.calls) == 1


async def test_a_cache_moves_without_its_secret(machine: Callable[..., Machine]) -> None:
    old, new = machine(), machine()
    async with old.gateway() as test:
        assert await kinds(test, ASKED) == ["miss"]
    exported = old.run("export")
    assert exported.stderr == "exported 1 entries\n"
    with closing(SqliteReader.open(old.cache)) as reader:
        assert reader.secret().hex() not in exported.stdout
    imported = new.run("import", "-", stdin=exported.stdout_bytes)
    assert imported.stdout == "imported 1 entries\n"
    assert new.entries()[0].exact_key != old.entries()[0].exact_key
    async with new.gateway() as test:
        assert await kinds(test, ASKED, REWORDED) == ["hit-exact", "hit-semantic"]
        assert test.backend.calls == []


async def test_tenants_that_no_client_here_is_are_told_of(machine: Callable[..., Machine]) -> None:
    old, new = machine(auth="passthrough"), machine(auth="passthrough")
    async with old.gateway() as test:
        await test.ask(ASKED)
        await test.ask(ASKED, headers={"authorization": ""})
    file = old.run("export").stdout_bytes
    said = new.run("import", "-", stdin=file)
    assert said.exit_code == 0
    assert "imported 2 entries\n" in said.stdout
    assert "warning: no client finds 1 of them" in said.stdout
    async with new.gateway() as test:
        assert (await test.ask(ASKED)).headers["x-lockgate-cache"] == "miss"
        nobody = await test.ask(ASKED, headers={"authorization": ""})
        assert nobody.headers["x-lockgate-cache"] == "hit-exact"
    assert old.done("import", "-", stdin=file)["unreachable"] == 0  # its own secret


async def test_a_file_that_is_there_keeps_its_secret(machine: Callable[..., Machine]) -> None:
    old, new = machine(auth="passthrough"), machine(auth="passthrough")
    async with old.gateway() as test:
        await test.ask(ASKED)
    async with new.gateway() as test:
        await test.ask("sea why is it salty?")
    with closing(SqliteReader.open(new.cache)) as reader:
        secret = reader.secret()
    file = old.run("export", "--with-secret").stdout_bytes
    assert new.done("import", "-", stdin=file)["unreachable"] == 1
    with closing(SqliteReader.open(new.cache)) as reader:
        assert reader.secret() == secret


async def test_what_was_shared_by_everyone_belongs_to_who_asked(machine: Callable[..., Machine]) -> None:
    old, new = machine(auth="passthrough"), machine(auth="passthrough")
    async with old.gateway(share="everyone") as test:
        assert await kinds(test, ASKED) == ["miss"]
        assert await kinds(test, ASKED, key="another") == ["hit-exact"]
    new.done("import", "-", stdin=old.run("export", "--with-secret").stdout_bytes)
    async with new.gateway() as test:
        assert await kinds(test, ASKED) == ["hit-exact"]
        assert (await test.ask(ASKED, key="another")).headers["x-lockgate-cache"] == "miss"


async def test_only_what_was_asked_for_is_exported(machine: Callable[..., Machine], tmp_path: Path) -> None:
    old, file = machine(), tmp_path / "cache.jsonl"
    async with old.gateway() as test:
        await test.ask(ASKED, model="small", headers={"x-lockgate-tag": "docs"})
        await test.ask(ASKED, model="large")
    for arguments, models in (
        (("--tag", "docs"), ["small"]),
        (("--model", "large"), ["large"]),
        (("--tenant", "open"), ["small", "large"]),
        (("--tenant", "open", "--model", "large", "--tag", "docs"), []),
    ):
        assert old.done("export", "--output", str(file), *arguments)["entries"] == len(models)
        with file.open("rb") as stream:
            exported = [entry.request.model for entry in LockgateFile(stream, "c").entries()]
        assert exported == models


async def test_an_export_that_fails_leaves_the_last_one(
    machine: Callable[..., Machine], tmp_path: Path
) -> None:
    old, file = machine(), tmp_path / "cache.jsonl"
    async with old.gateway() as test:
        await test.ask(ASKED)
        await test.ask("sea why is it salty?")
    file.write_text("the last one")
    with closing(sqlite3.connect(old.cache)) as connection, connection:
        connection.execute("UPDATE entries SET body = CAST('{' AS BLOB) WHERE id = 2")
    assert "entry 2 is damaged" in old.refused("export", "--output", str(file))
    assert file.read_text() == "the last one"
    assert names(tmp_path) == ["cache.jsonl", "old"]


async def test_entries_of_an_older_lockgate_stay(machine: Callable[..., Machine]) -> None:
    old = machine()
    async with old.gateway() as test:
        await test.ask(ASKED)
    with closing(sqlite3.connect(old.cache)) as connection, connection:
        connection.execute("UPDATE entries SET request = x''")
    exported = old.run("export")
    assert exported.stderr.startswith("exported 0 entries\n1 left out: an older lockgate stored them")
    assert len(exported.stdout.splitlines()) == 1


def test_the_newer_answer_stays(machine: Callable[..., Machine]) -> None:
    new = machine()
    now = time.time()
    older, newer = (line(ASKED, created_at=now - age, model="auto") for age in (60, 30))
    newer["answer"]["body"] = make_body("newer")
    assert new.done("import", "-", stdin=file_of(older))["imported"] == 1
    again = new.done("import", "-", stdin=file_of(older))
    assert (again["imported"], again["kept"]) == (0, 1)
    better = new.done("import", "-", stdin=file_of(newer))
    assert (better["imported"], better["replaced"], better["kept"], better["evicted"]) == (1, 1, 0, 0)
    back = new.done("import", "-", stdin=file_of(older))
    assert (back["imported"], back["kept"]) == (0, 1)
    [entry] = new.entries()
    assert entry.answer.body == make_body("newer")


@pytest.mark.parametrize("newer_first", [True, False])
def test_the_newer_of_two_in_one_file_stays(machine: Callable[..., Machine], newer_first: bool) -> None:
    new = machine()
    now = time.time()
    lines = [line(ASKED, created_at=now - 60), line(ASKED, created_at=now - 30)]
    lines[1]["answer"]["body"] = make_body("newer")
    counts = new.done("import", "-", stdin=file_of(*(reversed(lines) if newer_first else lines)))
    assert (counts["imported"], counts["kept"], counts["replaced"]) == (1, 1, 0)
    [entry] = new.entries()
    assert entry.answer.body == make_body("newer")


def test_what_has_expired_is_left_out_unless_it_gets_time(machine: Callable[..., Machine]) -> None:
    new = machine()
    now = time.time()
    lines = [line("old one", created_at=now - 7200), line("valid one", ttl_s=50.0)]
    counts = new.done("import", "-", stdin=file_of(*lines))
    assert (counts["imported"], counts["left"]) == (1, {"expired": 1})
    counts = new.done("import", "-", "--ttl-s", "500", stdin=file_of(*lines))
    assert (counts["imported"], counts["kept"], counts["left"]) == (1, 1, {})
    ends = {entry.text: entry.expires_at - now for entry in new.entries()}
    assert ends["old one"] == pytest.approx(500, abs=60)
    assert ends["valid one"] == pytest.approx(50, abs=1)


def test_an_old_answer_about_now_stays_out_whatever_time_it_gets(machine: Callable[..., Machine]) -> None:
    lines = [line("What is the weather like in Oslo right now?", created_at=time.time() - 90_000)]
    counts = machine().done("import", "-", "--ttl-s", "86400", stdin=file_of(*lines))
    assert counts["imported"] == 0
    [reason] = counts["left"]
    assert reason.startswith("not to be kept: the question asks about")


def test_personal_data_that_is_not_to_be_stored_is_not(machine: Callable[..., Machine]) -> None:
    text = "Write to jane.doe@example.com that I am late"
    strict, lenient = machine(cache='personal_data = "no-store"'), machine()
    counts = strict.done("import", "-", stdin=file_of(line(text)))
    assert (counts["imported"], len(counts["left"])) == (0, 1)
    assert lenient.done("import", "-", stdin=file_of(line(text)))["exact_only"] == 1


def test_answers_that_may_not_be_stored_are_left_out(machine: Callable[..., Machine]) -> None:
    cut, empty = line("one"), line("two")
    cut["answer"]["body"]["choices"][0]["finish_reason"] = "length"
    empty["answer"]["body"]["choices"] = []
    counts = machine().done("import", "-", stdin=file_of(cut, empty, line("three")))
    assert counts["imported"] == 1
    assert counts["left"] == {"the answer ended with length": 1, "the answer has no choices": 1}


def test_vectors_of_another_space_are_made_anew(machine: Callable[..., Machine]) -> None:
    vector = "ADwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="  # float16: a one and fifteen zeros
    foreign = line(ASKED, space="another", vector=vector)
    own = line("sea why is it salty?", space="fake-topics", vector=vector)
    plain = line("fire why is it hot?")
    withdrawn = line("ice why is it cold?", text=None)
    other_text = line("fog why is it grey?", text="fog", space="fake-topics", vector=vector)
    new = machine()
    counts = new.done("import", "-", stdin=file_of(foreign, own, plain, withdrawn, other_text))
    assert (counts["imported"], counts["embedded"], counts["exact_only"]) == (5, 3, 1)
    stored = {entry.text: entry for entry in new.entries()}
    first = stored.pop("sea why is it salty?").vector
    assert first is not None
    assert first.tolist() == [1.0] + [0.0] * 15
    assert stored.pop(None).vector is None
    for text, entry in stored.items():
        assert text is not None
        assert entry.vector is not None
        expected = FakeTopicEmbedder().encode([text]).vectors[0]
        assert float(np.dot(entry.vector, expected)) == pytest.approx(1.0, abs=1e-3)
        assert entry.space == "fake-topics"


async def test_without_embedding_they_are_found_by_exact_match(machine: Callable[..., Machine]) -> None:
    new = machine()
    counts = new.done("import", "-", "--no-embed", stdin=file_of(line(ASKED)))
    assert (counts["imported"], counts["embedded"], counts["exact_only"]) == (1, 0, 1)
    async with new.gateway() as test:
        assert await kinds(test, ASKED, REWORDED) == ["hit-exact", "miss"]


def test_a_text_that_the_embedder_cuts_gets_no_vector(machine: Callable[..., Machine]) -> None:
    new = machine()
    words = " ".join(["word"] * (FakeTopicEmbedder.max_tokens + 1))
    counts = new.done("import", "-", stdin=file_of(line(words), line("x" * 60_000)))
    assert (counts["embedded"], counts["exact_only"]) == (1, 2)
    assert [entry.vector for entry in new.entries()] == [None, None]


def test_an_exact_cache_needs_no_embedder(
    machine: Callable[..., Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("embeddings.onnx_embedder.OnnxEmbedder.open")
    new = machine(cache='[cache.policy]\nkind = "exact"')
    counts = new.done("import", "-", stdin=file_of(line(ASKED)))
    assert (counts["imported"], counts["exact_only"]) == (1, 1)


def test_a_wrong_line_ends_the_import_and_says_what_came_before(machine: Callable[..., Machine]) -> None:
    new = machine()
    lines = [line(f"q{n}") for n in range(130)]
    bad = line("bad")
    bad["answer"]["cost_usd"] = "free"
    said = new.refused("import", "-", stdin=file_of(*lines, bad))
    assert "lockgate: stdin, line 132: answer.cost_usd: expected `float`, got `str`" in said
    assert f"({len(new.entries())} entries were imported before)" in said
    assert len(new.entries()) == 128


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda line: line["request"][5].update(messages="hi"),
            "line 2: request: messages: expected `array`",
        ),
        (lambda line: line["request"][5].update(model="b"), "line 2: request: expected the same model twice"),
        (
            lambda line: line["answer"].update(body={"choices": ["x"]}),
            "line 2: answer.body: expected an answer",
        ),
        (
            lambda line: line.update(space="fake-topics", vector="ADwAAA=="),
            "line 2: vector: expected 16 dimensions, as fake-topics has, got 2",
        ),
    ],
)
def test_what_could_not_be_served_is_an_error(
    machine: Callable[..., Machine], change: Callable[[Any], None], message: str
) -> None:
    bad = line("bad")
    change(bad)
    assert message in machine().refused("import", "-", stdin=file_of(bad))


def test_a_cut_file_is_an_error(machine: Callable[..., Machine]) -> None:
    new = machine()
    content = file_of(line("one"), line("two"))
    assert "line 3: the last line is cut off" in new.refused("import", "-", stdin=content[:-20])
    assert "expected 3 entries" in new.refused("import", "-", stdin=file_of(line("one"), entries=3))


def test_a_dry_run_changes_nothing(machine: Callable[..., Machine], embedder: FakeTopicEmbedder) -> None:
    new = machine()

    def fail() -> None:
        raise AssertionError("nothing is to be embedded")

    now = time.time()
    content = file_of(line("one", created_at=now), line("two", created_at=now - 7200))
    embedder.delay = fail
    counts = new.done("import", "-", "--dry-run", stdin=content)
    assert (counts["dry_run"], counts["imported"], counts["embedded"]) == (True, 1, 1)
    assert counts["left"] == {"expired": 1}
    assert not new.cache.exists()
    embedder.delay = lambda: None
    new.done("import", "-", stdin=content)
    counts = new.done("import", "-", "--dry-run", stdin=content)
    assert (counts["imported"], counts["kept"]) == (0, 1)
    assert "would import 0 entries" in new.run("import", "-", "--dry-run", stdin=content).stdout


def test_a_full_cache_makes_room(machine: Callable[..., Machine]) -> None:
    new = machine(cache="max_entries = 2")
    counts = new.done("import", "-", stdin=file_of(*(line(f"q{n}") for n in range(5))))
    assert (counts["imported"], counts["evicted"]) == (5, 3)
    assert len(new.entries()) == 2


async def test_the_gateway_must_be_stopped_for_an_import(machine: Callable[..., Machine]) -> None:
    new = machine()
    async with new.gateway():
        assert "is in use by another lockgate: stop it" in new.refused(
            "import", "-", stdin=file_of(line(ASKED))
        )


def test_what_cannot_be_done_is_said(machine: Callable[..., Machine], tmp_path: Path) -> None:
    memory = machine(cache='store = "memory"')
    for command in (("export",), ("import", "-")):
        assert 'cache.store = "memory": expected "sqlite"' in memory.refused(*command)
    off = machine(cache="enabled = false")
    assert "cache.enabled = false: expected true" in off.refused("import", "-")
    new = machine(cache='[cache.volatile]\nrules = "none.toml"')
    assert "none.toml" in new.refused("import", "-", stdin=file_of())
    new.config.write_text(f'[cache]\npath = "{new.cache}"\n')
    assert "there is no cache file" in new.refused("export")
    assert f"{tmp_path / 'none'}: No such file" in new.refused("import", str(tmp_path / "none"))
    assert "expected with --format gptcache only" in new.refused("import", "-", "--model", "m")
    assert not new.cache.exists()
    assert new.run("import", "-", stdin=file_of()).stdout == "imported 0 entries\n"
    assert f"{tmp_path}: expected the name of a file" in new.refused("export", "--output", str(tmp_path))
    nowhere = str(tmp_path / "none" / "c.jsonl")
    assert f"{nowhere}: No such file" in new.refused("export", "--output", nowhere)


@pytest.fixture
def gptcache(tmp_path: Path) -> GptcacheWriter:
    return GptcacheWriter(tmp_path / "sqlite.db")


def local_time(age_s: float = 0.0) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S.000000", time.localtime(time.time() - age_s))


async def test_answers_of_gptcache_are_served(
    machine: Callable[..., Machine], gptcache: GptcacheWriter
) -> None:
    gptcache.add(ASKED, ("answer 1", 0), created=local_time(60))
    gptcache.add("draw a cat", ("aGk=", 1), created=local_time(60))
    gptcache.add("two days ago", ("x", 0), created=local_time(2 * 86_400))
    new = machine()
    counts = new.done("import", str(gptcache.path), "--format", "gptcache", "--model", "small")
    assert (counts["imported"], counts["embedded"]) == (1, 1)
    assert counts["left"] == {"the answer is not text": 1, "expired": 1}
    async with new.gateway() as test:
        assert await kinds(test, ASKED, REWORDED, model="small") == ["hit-exact", "hit-semantic"]
        response = await test.ask(ASKED, model="small", stream=True)
        assert (response.headers["x-lockgate-cache"], told(response)) == ("hit-exact", "answer 1")
        assert test.backend.calls == []
        assert (await test.ask(ASKED, model="large")).headers["x-lockgate-cache"] == "miss"


async def test_the_system_prompt_is_part_of_what_is_asked(
    machine: Callable[..., Machine], gptcache: GptcacheWriter
) -> None:
    gptcache.add(ASKED, ("answer 1", 0), created=local_time())
    new = machine()
    arguments = ("--format", "gptcache", "--model", "small", "--system", "Be brief.")
    new.done("import", str(gptcache.path), *arguments)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": ASKED}]
    async with new.gateway() as test:
        assert await kinds(test, "", model="small", messages=messages) == ["hit-exact"]
        assert (await test.ask(ASKED, model="small")).headers["x-lockgate-cache"] == "miss"


def test_whose_answers_those_of_gptcache_are(
    machine: Callable[..., Machine], gptcache: GptcacheWriter
) -> None:
    gptcache.add(ASKED, ("answer 1", 0), created=local_time())
    arguments = (str(gptcache.path), "--format", "gptcache", "--model", "small")
    passthrough = machine(auth="passthrough")
    assert "--tenant: expected whose clients" in passthrough.refused("import", *arguments)
    counts = passthrough.done("import", *arguments, "--tenant", "anonymous")
    assert (counts["imported"], counts["unreachable"]) == (1, 0)
    assert passthrough.done("import", *arguments, "--tenant", "bob")["unreachable"] == 1
    digest = "0" * 64
    keys = machine(auth="keys", cache=f'[auth.keys.web]\nsha256 = "{digest}"\ntenant = "team"')
    assert "one of team" in keys.refused("import", *arguments)
    assert keys.done("import", *arguments, "--tenant", "team")["unreachable"] == 0
    shared = machine(auth="passthrough", cache='share = "everyone"')
    assert shared.done("import", *arguments)["unreachable"] == 0


def test_gptcache_needs_a_model_and_a_file(machine: Callable[..., Machine], tmp_path: Path) -> None:
    new = machine()
    assert "--model: expected" in new.refused("import", str(tmp_path / "x"), "--format", "gptcache")
    assert "-: expected the SQLite file" in new.refused("import", "-", "--format", "gptcache", "--model", "m")

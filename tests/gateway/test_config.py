"""Reading config.toml, and what is said when it is wrong."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gateway.config import load, parse
from gateway.config_problems import ConfigError
from gateway.settings import BACKEND_KINDS, HttpBackendSettings, OpenAIBackendSettings, Settings

ROOT = Path(__file__).resolve().parents[2]
MODEL = '[models.m]\nbackend = "up"\nname = "n"\n[backends.up]\nkind = "openai"\n'


def settings(toml: str, **environment: str) -> Settings:
    return parse(tomllib.loads(toml), environment, source="c.toml")


def problems(toml: str, **environment: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        settings(toml, **environment)
    return str(caught.value).splitlines()


def test_the_shipped_file_is_the_defaults() -> None:
    assert load(ROOT / "config.toml", {}) == load(None, {})


def test_the_shipped_file_names_every_key() -> None:
    text = (ROOT / "config.toml").read_text("utf-8")
    schema = Settings.model_json_schema()
    keys = {key for table in [schema, *schema["$defs"].values()] for key in table.get("properties", {})}
    missing = {key for key in keys if not re.search(rf"(^#? ?|[\[.]){key}\b", text, re.MULTILINE)}
    assert missing == set()


def test_the_commented_examples_are_valid_too() -> None:
    text = (ROOT / "config.toml").read_text("utf-8")
    uncommented = re.sub(r"^# (?=\[|\w+ = )", "", text, flags=re.MULTILINE)
    keys = {"OPENAI_API_KEY": "sk-test", "ANTHROPIC_API_KEY": "sk-ant-test"}
    read = parse(tomllib.loads(uncommented), keys, source="config.toml")
    assert read.models["large"].name == "gpt-5"


def test_without_models_the_built_in_one_is_small_and_large() -> None:
    read = settings("[server]\nport = 9000")
    assert read.server.port == 9000
    assert read.models["small"].backend == read.models["large"].backend == "builtin"
    assert read.routes["auto"].small == "small"
    assert read.server.unknown_models is None


@pytest.mark.parametrize(
    ("key", "address"),
    [
        ("OPENAI_API_KEY", "https://api.openai.com/v1"),
        ("ANTHROPIC_API_KEY", "https://api.anthropic.com"),
    ],
)
def test_a_key_in_the_environment_makes_that_api_large(key: str, address: str) -> None:
    read = settings("", **{key: "sk-env"})
    backend = read.backends[read.models["large"].backend]
    assert isinstance(backend, HttpBackendSettings)
    assert (backend.base_url, backend.api_key) == (address, "sk-env")
    assert read.models["small"].backend == "builtin"
    assert read.server.unknown_models is not None


def test_a_file_with_backends_brings_its_own_models() -> None:
    read = settings('[backends.up]\nkind = "openai"\n', OPENAI_API_KEY="sk-env")
    assert list(read.backends) == ["up"]
    assert read.models == {}


def test_secrets_come_from_the_environment_or_a_file(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("sk-file\n")
    read = settings(
        f'[backends.a]\nkind = "openai"\napi_key = "env::KEY"\n'
        f'[backends.b]\nkind = "openai"\napi_key = "file::{tmp_path}/key"\n',
        KEY="sk-environment",
    )
    keys = [b.api_key for b in read.backends.values() if isinstance(b, OpenAIBackendSettings)]
    assert keys == ["sk-environment", "sk-file"]


def test_an_unset_admin_token_is_none_and_other_secrets_are_missed() -> None:
    assert settings('[server]\nadmin_token = "env::NOPE"').server.admin_token is None
    assert problems('[backends.a]\nkind = "openai"\napi_key = "env::NOPE"') == [
        'c.toml: backends.a.api_key = "env::NOPE": expected the environment variable NOPE to be set'
    ]
    (line,) = problems('[backends.a]\nkind = "openai"\napi_key = "file::/no/such"')
    assert "backends.a.api_key" in line
    assert "readable file" in line


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        ('[server]\nport = "80"', 'server.port = "80": expected a whole number'),
        ("[server]\nport = 70000", "server.port = 70000: expected a number of at most 65535"),
        ("[server]\nworkers = 2", "server.workers = 2: expected a number of at most 1"),
        ("[cache]\nttl_s = 0", "cache.ttl_s = 0: expected a number of more than 0"),
        ("[cache]\nenabled = 1", "cache.enabled = 1: expected true or false"),
        ('[cache]\nshare = "all"', "cache.share = \"all\": expected one of 'tenant', 'everyone'"),
        ('[cache.policy]\nmin_similarity = "high"', "expected a number or one of 'auto'"),
        ("[cache.policy]\nmin_similarity = 2", "cache.policy.min_similarity = 2"),
        ("[cache.policy]\nmin_similarity = 0.9", 'cache.policy.kind: expected "static", which alone'),
        ("[cache]\npolicy = 3", "cache.policy = 3: expected a table"),
        ('[embeddings]\nkind = "x"', "one of 'onnx', 'sentence-transformers'"),
        ("[zzz]\na = 1", "zzz: expected one of the known keys auth, backends, cache"),
        ("[server]\nprot = 1", "server.prot = 1: expected one of the known keys admin_token, forward"),
        ("[server.unknown_models]\n", "server.unknown_models.backend: expected a value; the key is missing"),
        ('[backends.a]\nkind = "x"', "backends.a: expected kind to be one of batched, openai, anthropic"),
        ("[backends.a]\n", "backends.a: expected a kind: one of batched, openai, anthropic"),
        (
            '[backends.openai]\nkind = "openai"\nbase = 1',
            "backends.openai.base = 1: expected one of the known keys api_key",
        ),
        (
            '[backends.a]\nkind = "anthropic"\ntimeout_s = -1',
            "backends.a.timeout_s = -1: expected a number of more than 0",
        ),
        ('[backends.a]\nkind = "openai"\nbase_url = "localhost"', "begins with http:// or https://"),
        ('[models.m]\nbackend = "no"', 'models.m.backend = "no": expected the name of a [backends.…] table'),
        ('[backends.up]\nkind = "openai"\n[models.m]\nbackend = "up"', "models.m.name: expected the model's"),
        (MODEL + '[routes.r]\nsmall = "m"\nlarge = "x"', 'routes.r.large = "x": expected the name of a'),
        (MODEL + '[routes.m]\nsmall = "m"\nlarge = "m"', "routes.m = "),
        (MODEL + '[routes.r]\nsmall = "m"\nlarge = "m"\n[routes.r.policy]\nstrong_share = 2', "at most 1"),
        ('[server.unknown_models]\nbackend = "no"', "server.unknown_models.backend"),
    ],
)
def test_each_problem_names_key_value_and_expectation(toml: str, said: str) -> None:
    (line,) = problems(toml)
    assert said in line
    assert line.startswith("c.toml: ")


def test_all_problems_are_told_at_once() -> None:
    assert len(problems('[server]\nport = "x"\nfoo = 1\n[cache]\nttl_s = -1')) == 3


def test_a_secret_that_is_wrong_is_not_shown() -> None:
    (line,) = problems('[backends.a]\nkind = "openai"\napi_key = 12345')
    assert "12345" not in line
    assert "(secret)" in line


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    broken = tmp_path / "broken.toml"
    broken.write_bytes(b"[server\n")
    for path, said in ((tmp_path / "none.toml", "readable file"), (broken, "valid TOML"), (tmp_path, "file")):
        with pytest.raises(ConfigError, match=said):
            load(path, {})


def test_every_default_value_is_valid() -> None:
    dumped: dict[str, Any] = Settings().model_dump(exclude_none=True)
    assert Settings.model_validate(dumped) == Settings()


def test_every_kind_of_backend_is_named_in_errors() -> None:
    mapping = Settings.model_json_schema()["properties"]["backends"]["additionalProperties"]["discriminator"]
    assert set(mapping["mapping"]) == set(BACKEND_KINDS)

"""Prices: from the config, from a price file, or unknown."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.prices import FREE, UNKNOWN, Price, PriceList, provider_of, unknown_notice
from gateway.settings import BackendSettings, BatchedBackendSettings, Model, OpenAIBackendSettings
from policies.types import Usage

OPENAI = OpenAIBackendSettings(kind="openai")
ELSEWHERE = OpenAIBackendSettings(kind="openai", base_url="http://10.0.0.1:8000/v1")
FILE: dict[str, Any] = {
    "sample_spec": {"input_cost_per_token": 0.0, "output_cost_per_token": 0.0},
    "gpt-5": {
        "litellm_provider": "openai",
        "input_cost_per_token": 1.25e-06,
        "output_cost_per_token": 1e-05,
        "cache_read_input_token_cost": 1.25e-07,
    },
    "claude-x": {
        "litellm_provider": "anthropic",
        "input_cost_per_token": 3e-06,
        "output_cost_per_token": 1.5e-05,
        "cache_read_input_token_cost": 3e-07,
        "cache_creation_input_token_cost": 3.75e-06,
    },
    "azure/gpt-5": {"litellm_provider": "azure", "input_cost_per_token": 2e-06},
    "vertex_ai/claude-old@20240101": {
        "litellm_provider": "vertex_ai-anthropic_models",
        "input_cost_per_token": 8e-06,
    },
    "vertex_ai/claude-old@20240601": {
        "litellm_provider": "vertex_ai-anthropic_models",
        "input_cost_per_token": 9e-06,
    },
    "nova": {"litellm_provider": "bedrock_converse", "input_cost_per_token": 5e-06},
    "ft:gpt-5": {"litellm_provider": "openai", "input_cost_per_token": 4e-06},
    "an-image": {"litellm_provider": "openai", "output_cost_per_image": 0.04},
    "odd": {"litellm_provider": "openai", "input_cost_per_token": "dear", "output_cost_per_token": -1},
}


@pytest.fixture
def price_list(tmp_path: Path) -> PriceList:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps(FILE))
    return PriceList(path)


def model(**keys: Any) -> Model:
    return Model(backend="up", **keys)


def test_each_kind_of_token_has_its_own_price() -> None:
    price = Price(
        input_usd_per_mtok=3.0,
        output_usd_per_mtok=15.0,
        cached_input_usd_per_mtok=0.3,
        cache_write_usd_per_mtok=3.75,
    )
    usage = Usage(prompt_tokens=1000, cached_tokens=600, cache_write_tokens=300, completion_tokens=10)
    assert price.cost_usd(usage) == pytest.approx((100 * 3 + 600 * 0.3 + 300 * 3.75 + 10 * 15) / 1e6)


@given(st.builds(Usage, prompt_tokens=st.integers(0, 10**6), cached_tokens=st.integers(0, 10**6)))
def test_a_cost_is_never_negative_whatever_an_upstream_reports(usage: Usage) -> None:
    assert Price(input_usd_per_mtok=1.0, cached_input_usd_per_mtok=0.1).cost_usd(usage) >= 0.0


def test_the_file_gives_the_price_of_a_million_tokens_without_binary_noise(price_list: PriceList) -> None:
    assert price_list.price("claude-x", "anthropic") == Price(
        input_usd_per_mtok=3.0,
        output_usd_per_mtok=15.0,
        cached_input_usd_per_mtok=0.3,
        cache_write_usd_per_mtok=3.75,
        source="litellm",
    )


def test_a_cache_price_that_the_file_lacks_is_the_input_price(price_list: PriceList) -> None:
    price = price_list.price("gpt-5", "openai")
    assert (price.cached_input_usd_per_mtok, price.cache_write_usd_per_mtok) == (0.125, 1.25)


@pytest.mark.parametrize(
    ("name", "hint", "input_usd"),
    [
        ("gpt-5", None, 1.25),
        ("GPT-5", "openai", 1.25),
        ("openai/gpt-5", None, 1.25),
        ("openai/gpt-5", "openai", 1.25),
        ("openai/gpt-5", "openrouter", 1.25),
        ("gpt-5", "azure", 2.0),
        ("azure/gpt-5", None, 2.0),
        ("gpt-5-2031-01-01", "openai", 1.25),
        ("claude-x-20310101", "anthropic", 3.0),
        ("anthropic/claude-x-latest", None, 3.0),
        ("claude-old", "vertex_ai", 9.0),
        ("claude-old@20240101", "vertex_ai", 8.0),
        ("claude-old@20250101", "vertex_ai", 9.0),
        ("nova", "bedrock", 5.0),
        ("ft:gpt-5:my-company::abc123", "openai", 4.0),
    ],
)
def test_names_with_and_without_provider_and_date(
    price_list: PriceList, name: str, hint: str | None, input_usd: float
) -> None:
    assert price_list.price(name, hint).input_usd_per_mtok == input_usd


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("gpt-6", None),
        ("gpt-5", "groq"),
        ("groq/gpt-5", None),
        ("open/gpt-5", None),
        ("sample_spec", None),
        ("an-image", "openai"),
        ("odd", "openai"),
        ("", None),
        ("/", None),
        ("-20240101", None),
    ],
)
def test_what_is_not_in_the_file_is_unknown_and_costs_nothing(
    price_list: PriceList, name: str, hint: str | None
) -> None:
    assert price_list.price(name, hint) == UNKNOWN
    assert UNKNOWN.cost_usd(Usage(prompt_tokens=10**6, completion_tokens=10**6)) == 0.0


def test_the_config_goes_first(price_list: PriceList) -> None:
    price = price_list.price_of(model(input_usd_per_mtok=1.0, output_usd_per_mtok=2.0), "gpt-5", OPENAI)
    assert (price.input_usd_per_mtok, price.output_usd_per_mtok, price.source) == (1.0, 2.0, "config")


def test_a_price_of_zero_in_the_config_is_a_price(price_list: PriceList) -> None:
    price = price_list.price_of(model(input_usd_per_mtok=0.0, output_usd_per_mtok=0.0), "gpt-5", OPENAI)
    assert price == FREE


def test_what_the_config_leaves_out_is_looked_up(price_list: PriceList) -> None:
    assert price_list.price_of(model(), "gpt-5", OPENAI).source == "litellm"
    assert price_list.price_of(model(input_usd_per_mtok=1.0), "gpt-5", OPENAI).output_usd_per_mtok == 10.0


def test_cached_tokens_keep_the_proportion_of_the_file_to_the_input_price(price_list: PriceList) -> None:
    half = price_list.price_of(model(input_usd_per_mtok=1.5), "anthropic/claude-x", OPENAI)
    assert (half.cached_input_usd_per_mtok, half.cache_write_usd_per_mtok) == (0.15, 1.875)


def test_cached_tokens_of_a_model_that_the_file_lacks_cost_as_others(price_list: PriceList) -> None:
    price = price_list.price_of(model(input_usd_per_mtok=1.5), "my-model", ELSEWHERE)
    assert (price.cached_input_usd_per_mtok, price.cache_write_usd_per_mtok) == (1.5, 1.5)


def test_the_configs_own_cache_prices_hold(price_list: PriceList) -> None:
    keys = {"cached_input_usd_per_mtok": 0.2, "cache_write_usd_per_mtok": 5.0}
    price = price_list.price_of(model(**keys), "claude-x", OPENAI)
    assert (price.cached_input_usd_per_mtok, price.cache_write_usd_per_mtok) == (0.2, 5.0)


def test_a_cache_price_alone_does_not_make_a_price_known(price_list: PriceList) -> None:
    price = price_list.price_of(model(cached_input_usd_per_mtok=0.2), "my-model", ELSEWHERE)
    assert price.source == "unknown"


def test_the_built_in_engines_tokens_are_free_and_not_looked_up(price_list: PriceList) -> None:
    assert price_list.price_of(model(), "gpt-5", BatchedBackendSettings(kind="batched")) == FREE


@pytest.mark.parametrize(
    ("base_url", "provider"),
    [
        ("https://api.openai.com/v1", "openai"),
        ("https://api.anthropic.com/v1", "anthropic"),
        ("https://me.openai.azure.com/openai/v1", "azure"),
        ("https://us-east5-aiplatform.googleapis.com/v1", "vertex_ai"),
        ("http://127.0.0.1:8000/v1", None),
        ("https://api.openai.com.example.org/v1", None),
    ],
)
def test_the_address_tells_the_provider(base_url: str, provider: str | None) -> None:
    backend: BackendSettings = OpenAIBackendSettings(kind="openai", base_url=base_url)
    assert provider_of(backend) == provider


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_a_damaged_file_means_unknown_prices_and_a_reason(tmp_path: Path, content: str) -> None:
    path = tmp_path / "prices.json"
    path.write_text(content)
    price_list = PriceList(path)
    assert price_list.price("gpt-5") == UNKNOWN
    assert str(path) in price_list.problem


def test_without_litellm_prices_are_unknown_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    price_list = PriceList()
    prices = {"large": price_list.price("gpt-5"), "small": FREE}
    assert prices["large"] == UNKNOWN
    said = unknown_notice(prices, price_list)
    assert said.startswith("unknown (litellm is not installed) and counted as 0: large;")
    assert unknown_notice({"small": FREE}, price_list) == ""


def test_a_litellm_without_a_folder_is_no_litellm(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.machinery.ModuleSpec("litellm", None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: module)
    assert PriceList().price("gpt-5") == UNKNOWN


def test_the_file_is_read_at_the_first_look_up_only(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    price_list = PriceList(path)
    path.write_text(json.dumps(FILE))
    assert price_list.price("gpt-5").source == "litellm"
    path.unlink()
    assert price_list.price("claude-x").source == "litellm"


def test_litellms_own_file_has_the_models_people_use_and_litellm_is_not_imported() -> None:
    if importlib.util.find_spec("litellm") is None:
        pytest.skip("litellm is not installed: its price file cannot be tried")
    script = (
        "import sys; from gateway.prices import PriceList; p = PriceList();"
        "names = [('gpt-5', 'openai'), ('openai/gpt-4o-2024-11-20', None),"
        " ('claude-sonnet-4-5', 'anthropic'),"
        " ('anthropic/claude-sonnet-4-5-20250929', None), ('gemini-2.5-pro', 'gemini')];"
        "prices = [p.price(*name) for name in names];"
        "assert all(x.source == 'litellm' for x in prices), prices;"
        "assert all(0 < x.cached_input_usd_per_mtok < x.input_usd_per_mtok < x.output_usd_per_mtok < 1000"
        " for x in prices), prices;"
        "assert prices[2].cache_write_usd_per_mtok > prices[2].input_usd_per_mtok;"
        "print('litellm' in sys.modules, 'httpx' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("False False", "")

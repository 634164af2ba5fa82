"""What a model's tokens cost: from the config, else from the price file that litellm carries."""

from __future__ import annotations

import importlib.util
import math
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from gateway.settings import BackendSettings, BatchedBackendSettings, Model
from policies.types import Usage

PRICE_FILE = "model_prices_and_context_window_backup.json"
_DATED = re.compile(r"[-@](latest|\d{4}-\d\d-\d\d|\d{8}|\d{6}|\d{4})$")
_PROVIDERS = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "openrouter.ai": "openrouter",
    "api.groq.com": "groq",
    "api.mistral.ai": "mistral",
    "api.deepseek.com": "deepseek",
    "api.together.xyz": "together_ai",
    "api.fireworks.ai": "fireworks_ai",
    "api.x.ai": "xai",
    "api.deepinfra.com": "deepinfra",
    "generativelanguage.googleapis.com": "gemini",
}
_PROVIDER_DOMAINS = {
    ".openai.azure.com": "azure",
    ".services.ai.azure.com": "azure_ai",
    ".amazonaws.com": "bedrock",
    "aiplatform.googleapis.com": "vertex_ai",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """USD for a million tokens of each kind. `source` says where the numbers come from; those of an unknown
    price are 0."""

    input_usd_per_mtok: float = 0.0
    output_usd_per_mtok: float = 0.0
    cached_input_usd_per_mtok: float = 0.0
    cache_write_usd_per_mtok: float = 0.0
    source: Literal["config", "litellm", "unknown"] = "unknown"

    def cost_usd(self, usage: Usage) -> float:
        """Tokens read from or written to the provider's prompt cache cost their own price, the rest of the
        prompt the input price."""
        plain = max(0, usage.prompt_tokens - usage.cached_tokens - usage.cache_write_tokens)
        return (
            plain * self.input_usd_per_mtok
            + usage.cached_tokens * self.cached_input_usd_per_mtok
            + usage.cache_write_tokens * self.cache_write_usd_per_mtok
            + usage.completion_tokens * self.output_usd_per_mtok
        ) / 1_000_000


_KEYS = (
    "input_usd_per_mtok",
    "output_usd_per_mtok",
    "cached_input_usd_per_mtok",
    "cache_write_usd_per_mtok",
)
UNKNOWN = Price()
FREE = Price(source="config")


class _Row(msgspec.Struct, gc=False):
    """What is read of the file's rows: the rest of its megabytes is never held."""

    input_cost_per_token: Any = None
    output_cost_per_token: Any = None
    cache_read_input_token_cost: Any = None
    cache_creation_input_token_cost: Any = None
    litellm_provider: Any = None


class PriceList:
    """Prices by model name. The file is read once, when a price is first asked for that the config lacks:
    some 30 ms, so call `load` on another thread before. litellm itself is not imported."""

    def __init__(self, path: Path | None = None) -> None:
        """`path` of a price file in litellm's form, instead of the one in the installed litellm."""
        self._path = path
        self._lock = threading.Lock()
        self._loaded = False
        self._entries: dict[str, tuple[str, Price]] = {}
        self._newest: dict[str, str] = {}
        self._problem = ""

    @property
    def problem(self) -> str:
        """ "" when the file was read or not asked for yet; else why there are no prices in it."""
        return self._problem

    def load(self) -> None:
        """Read the file unless that was done. Any thread may call it."""
        with self._lock:
            if not self._loaded:
                self._read()
                self._loaded = True

    def price(self, model_name: str, provider_hint: str | None = None) -> Price:
        """The price that the file has for a model, UNKNOWN when it has none.

        `provider_hint` is the provider in litellm's words (`provider_of`): with it, another provider's price
        for a model of the same name is not taken. Names may carry a provider ("openai/gpt-5") and a date
        ("gpt-5-2025-08-07"): one without a price of its own has that of its undated name, and an undated
        name that of its newest dated one.
        """
        if not self._loaded:
            self.load()
        places = _places(model_name, provider_hint)
        for key, provider in places:
            if (found := self._find(key, provider)) is not None:
                return found
        for key, provider in places:
            undated = _DATED.sub("", key)
            newest = self._newest.get(undated, "")
            if (found := self._find(undated, provider) or self._find(newest, provider)) is not None:
                return found
        return UNKNOWN

    def price_of(self, model: Model, upstream_name: str, backend: BackendSettings) -> Price:
        """The price of a configured model: its keys, and for those left out the file's. Cached tokens keep
        the file's proportion to the input price. The built-in engine's tokens are free unless the config
        says otherwise."""
        own = {key: usd for key in _KEYS if (usd := getattr(model, key)) is not None}
        listed = FREE
        if not isinstance(backend, BatchedBackendSettings) and len(own) < len(_KEYS):
            listed = self.price(upstream_name, provider_of(backend))
        if not own:
            return listed
        input_usd = own.get("input_usd_per_mtok", listed.input_usd_per_mtok)
        scale = input_usd / listed.input_usd_per_mtok if listed.input_usd_per_mtok else None
        derived = {
            "input_usd_per_mtok": input_usd,
            "output_usd_per_mtok": listed.output_usd_per_mtok,
            "cached_input_usd_per_mtok": (
                input_usd if scale is None else _rounded(listed.cached_input_usd_per_mtok * scale)
            ),
            "cache_write_usd_per_mtok": (
                input_usd if scale is None else _rounded(listed.cache_write_usd_per_mtok * scale)
            ),
        }
        source = "config" if own.keys() & set(_KEYS[:2]) else listed.source
        return Price(**{**derived, **own}, source=source)

    def _find(self, key: str, provider: str) -> Price | None:
        entry = self._entries.get(key)
        if entry is None or (provider and not f"{entry[0]}_".startswith((f"{provider}_", f"{provider}-"))):
            return None
        return entry[1]

    def _read(self) -> None:
        path = self._path or _litellm_file()
        if path is None:
            self._problem = "litellm is not installed"
            return
        try:
            rows = msgspec.json.decode(path.read_bytes(), type=dict[str, _Row])
        except (OSError, msgspec.DecodeError) as error:
            self._problem = f"{path} is not a price file that can be read: {error}"
            return
        dates: dict[str, tuple[int, str]] = {}
        for name, row in rows.items():
            price = _price(row) if name != "sample_spec" else None
            if price is None:
                continue
            key = name.lower()
            self._entries[key] = sys.intern(str(row.litellm_provider or "")), price
            if (dated := _DATED.search(key)) and dated[1] != "latest":
                base, date = key[: dated.start()], dated[1].replace("-", "")
                if (age := (len(date), date)) > dates.get(base, (0, "")):
                    dates[base] = age
                    self._newest[base] = key


def provider_of(backend: BackendSettings) -> str | None:
    """The provider behind a backend, in litellm's words; None when its kind and address do not tell."""
    kind: str = backend.kind
    host = urlsplit(str(getattr(backend, "base_url", ""))).hostname or ""
    if host in _PROVIDERS:
        return _PROVIDERS[host]
    of_domain = (name for domain, name in _PROVIDER_DOMAINS.items() if host.endswith(domain))
    return next(of_domain, "anthropic" if kind == "anthropic" else None)


def unknown_notice(prices: Mapping[str, Price], price_list: PriceList) -> str:
    """What to say once, at start, of models without a price; "" when each has one. `prices` are by the
    models' names in the config."""
    unknown = sorted(name for name, price in prices.items() if price.source == "unknown")
    if not unknown:
        return ""
    why = f" ({price_list.problem})" if price_list.problem else ""
    return (
        f"unknown{why} and counted as 0: {', '.join(unknown)}; set models.{unknown[0]}.input_usd_per_mtok "
        "and output_usd_per_mtok, or install lockgate[litellm] for its price list"
    )


def _places(model_name: str, provider_hint: str | None) -> list[tuple[str, str]]:
    """Where a price may stand, best first: a key of the file, and whose price it must be ("" for anyone's):
    "bedrock" is met by bedrock_converse too, "vertex_ai" by vertex_ai-mistral_models."""
    name = model_name.strip().lower()
    if name.startswith("ft:"):  # ft:BASE:organisation:name:id
        name = ":".join(name.split(":")[:2])
    head, _, rest = name.partition("/")
    places = []
    if provider_hint:
        places += [(f"{provider_hint}/{name}", ""), (name, provider_hint)]
    else:
        places.append((name, ""))
    if rest:
        places.append((rest, head))
    return places


def _price(row: _Row) -> Price | None:
    input_usd = _per_mtok(row.input_cost_per_token)
    output_usd = _per_mtok(row.output_cost_per_token)
    if input_usd is None and output_usd is None:
        return None
    input_usd = input_usd or 0.0
    cached_usd = _per_mtok(row.cache_read_input_token_cost)
    written_usd = _per_mtok(row.cache_creation_input_token_cost)
    return Price(
        input_usd_per_mtok=input_usd,
        output_usd_per_mtok=output_usd or 0.0,
        cached_input_usd_per_mtok=input_usd if cached_usd is None else cached_usd,
        cache_write_usd_per_mtok=input_usd if written_usd is None else written_usd,
        source="litellm",
    )


def _per_mtok(usd_per_token: object) -> float | None:
    if isinstance(usd_per_token, bool) or not isinstance(usd_per_token, int | float):
        return None
    if not (math.isfinite(usd_per_token) and usd_per_token >= 0):
        return None
    return _rounded(usd_per_token * 1_000_000)


def _rounded(usd: float) -> float:
    """Without the noise of binary fractions: 1.25e-06 of a token is 1.25 of a million."""
    return round(usd, 9)


def _litellm_file() -> Path | None:
    try:
        spec = importlib.util.find_spec("litellm")
    except ValueError:  # a module of that name without a spec
        return None
    folders = list(spec.submodule_search_locations or ()) if spec else []
    return Path(folders[0]) / PRICE_FILE if folders else None

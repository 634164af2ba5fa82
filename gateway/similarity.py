"""`min_similarity = "auto"`: the cosine each shipped embedder needs before an answer is served."""

from __future__ import annotations

from gateway.config_problems import ConfigError, Problem

MEASURED = {
    "multilingual-e5-small": 0.975,
    "all-MiniLM-L6-v2": 0.96,
}
"""By the beginning of the embedder's space. Measured by benchmarks/cache_quality.py: the least of its
thresholds at which at most 1 % of all requests of each stream were answered wrongly."""


def min_similarity(wanted: float | str, space: str) -> float:
    """Raises ConfigError for "auto" with an embedder nothing was measured for."""
    if not isinstance(wanted, str):
        return wanted
    for model, value in MEASURED.items():
        if space.startswith(model):
            return value
    expected = f"a number: nothing was measured for the embedder {space}, and scales differ between embedders"
    raise ConfigError(
        [Problem(key="cache.policy.min_similarity", value='"auto"', expected=expected)], "configuration"
    )

"""The thresholds behind "auto"."""

from __future__ import annotations

import pytest

from gateway.config_problems import ConfigError
from gateway.similarity import MEASURED, min_similarity


def test_a_number_is_itself_and_zero_is_a_number() -> None:
    assert min_similarity(0.0, "anything") == 0.0


def test_auto_is_what_was_measured_for_the_embedder() -> None:
    for model, value in MEASURED.items():
        assert min_similarity("auto", f"{model}-int8-1-abc/onnxruntime-cpu") == value


def test_auto_is_refused_for_another_embedder() -> None:
    with pytest.raises(ConfigError, match="expected a number: nothing was measured for the embedder other"):
        min_similarity("auto", "other")

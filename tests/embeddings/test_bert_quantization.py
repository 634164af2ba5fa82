from __future__ import annotations

import numpy as np
import pytest

from embeddings.bert_quantization import QuantizedLinear, Range, quantize
from embeddings.bert_weights import Linear
from embeddings.protocols import FloatMatrix

RNG = np.random.default_rng(0)
LINEAR = Linear(
    weight=RNG.standard_normal((48, 32)).astype(np.float32), bias=RNG.standard_normal(48).astype(np.float32)
)


def inputs() -> FloatMatrix:
    x = RNG.standard_normal((200, 32)).astype(np.float32)
    x[:, 7] *= 40
    return x


def seen(x: FloatMatrix) -> Range:
    return Range(low=x.min(axis=0), high=x.max(axis=0))


def apply(layer: QuantizedLinear, x: FloatMatrix) -> FloatMatrix:
    """What the runtime's kernels compute."""
    codes = np.clip(np.rint(x / layer.input_scale) + layer.input_zero, 0, 255)
    product = (codes - layer.input_zero) * layer.input_scale @ (layer.codes * layer.scales)
    result: FloatMatrix = product + layer.bias + x[:, layer.outliers] @ layer.outlier_weight
    return result


def error(outliers: int) -> float:
    x = inputs()
    exact = x @ LINEAR.weight.T + LINEAR.bias
    return float(np.abs(apply(quantize(LINEAR, seen(x), outliers), x) - exact).mean() / np.abs(exact).mean())


def test_an_outlier_kept_apart_leaves_the_rest_their_steps() -> None:
    assert error(outliers=1) < 0.01
    assert error(outliers=1) < error(outliers=0) / 3


def test_the_outlier_is_the_largest_channel_and_leaves_the_codes() -> None:
    layer = quantize(LINEAR, seen(inputs()), 1)
    assert layer.outliers.tolist() == [7]
    assert (layer.codes[7] == 0).all()
    assert np.array_equal(layer.outlier_weight[0], LINEAR.weight[:, 7])


def test_two_products_fit_in_sixteen_bits() -> None:
    layer = quantize(LINEAR, seen(inputs()))
    assert layer.codes.dtype == np.int8
    assert 2 * 255 * int(np.abs(layer.codes.astype(int)).max()) < 2**15


@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (0.0, 3.0), (-0.17, 9.0), (-5.0, -1.0), (0.0, 0.0)])
def test_zero_has_a_code_of_its_own(low: float, high: float) -> None:
    full = np.full(32, 1, np.float32)
    layer = quantize(LINEAR, Range(low=low * full, high=high * full))
    assert np.allclose(apply(layer, np.zeros((1, 32), np.float32)), LINEAR.bias)
    assert 0 <= int(layer.input_zero) <= 255
    reach = np.array([0, 255]) - float(layer.input_zero)
    assert reach[0] * layer.input_scale <= min(low, 0)
    assert reach[1] * layer.input_scale >= max(high, 0)


def test_ranges_that_differ_in_the_last_bit_give_the_same_layer() -> None:
    x = inputs()
    nudged = Range(
        low=np.nextafter(seen(x).low, np.float32(-99)), high=np.nextafter(seen(x).high, np.float32(99))
    )
    first, second = quantize(LINEAR, seen(x), 4), quantize(LINEAR, nudged, 4)
    assert first.input_scale == second.input_scale
    assert first.input_zero == second.input_zero
    assert np.array_equal(first.codes, second.codes)

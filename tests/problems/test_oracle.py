"""The oracle of workloads: against its layers one by one, and its bounds against faults."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cases.chains import conv_chain, gemm_chain
from benchmarks.cases.kernels import problem_for
from boltgen.errors import InputError
from boltgen.ir.dtypes import DType
from boltgen.problems.inputs import LayerInputs
from boltgen.problems.oracle import enclose
from boltgen.problems.reference import compare, run

CHAIN = gemm_chain(40, 72, (48, 24, 16), ("bias_relu", "bias_silu", "identity"))


def inputs(chain, rng, scale=1.0):
    def halves(shape, by=1.0):
        return (by * rng.standard_normal(shape)).astype(np.float16)

    a = halves(chain.first.problem.a_shape, scale)
    layers = []
    for layer in chain.layers:
        b = halves(layer.problem.b_shape, 0.15)
        n = layer.problem.gemm.n
        layers.append(LayerInputs(b, tuple(halves((n,)) for _ in layer.epilogue.loads)))
    return a, layers


def fp32(a, layers, fault=None):
    """The chain as a kernel computes it: sums in FP32, FP16 between layers."""
    for index, given in enumerate(layers):
        x = a.astype(np.float32) @ given.b.astype(np.float32).T
        if index == fault:
            x[:, :8] -= np.outer(a[:, -1], given.b[:8, -1]).astype(np.float32)
        if given.operands:
            x = x + given.operands[0].astype(np.float32)
            x = np.maximum(x, 0) if index == 0 else x / (1 + np.exp(-x))
        a = x.astype(np.float16)
    return a


def test_layers_are_rounded_between_and_not_after():
    a, layers = inputs(CHAIN, np.random.default_rng(1))
    found = enclose(CHAIN, a, layers)
    for layer, given in zip(CHAIN.layers, layers, strict=True):
        exact = run(layer.problem, layer.epilogue, a, given.b, given.operands)
        a = exact.astype(np.float16)
    assert np.array_equal(found.exact, exact)


def test_fp32_arithmetic_is_within_the_bound_and_a_missing_product_is_not():
    for seed in range(5):
        a, layers = inputs(CHAIN, np.random.default_rng(seed))
        found = enclose(CHAIN, a, layers)
        assert np.isfinite(found.bound).all()
        assert compare(fp32(a, layers), found.exact, found.bound).within
        for fault in range(3):
            wrong = fp32(a, layers, fault)
            assert not compare(wrong, found.exact, found.bound).within, fault


def test_nan_and_infinity_stay_in_their_rows():
    a, layers = inputs(CHAIN, np.random.default_rng(2))
    a[3, 5], a[7, 0] = np.nan, np.inf
    found = enclose(CHAIN, a, layers)
    assert np.isnan(found.exact[3]).all()
    assert not np.isfinite(found.exact[7]).any()
    others = np.delete(np.arange(40), (3, 7))
    assert np.isfinite(found.bound[others]).all()
    with np.errstate(all="ignore"):
        actual = fp32(a, layers)
    assert compare(actual, found.exact, found.bound).within


def test_anything_is_right_behind_a_value_that_may_overflow():
    chain = gemm_chain(2, 64, (8, 8), ("identity", "identity"))
    a = np.full((2, 64), 32.0, np.float16)
    a[1] = 1.0
    b = np.full((8, 64), 31.984375, np.float16)
    b[:, 0] = 32.5  # the sums are 65520.5, half an ulp from 65504 and from infinity
    found = enclose(chain, a, [LayerInputs(b), LayerInputs(np.eye(8, dtype=np.float16))])
    assert np.isinf(found.bound[0]).all()
    assert np.isfinite(found.bound[1]).all()


def test_a_convolution_goes_on_with_its_output():
    chain = conv_chain(problem_for("conv", 8, 8, "f32_f16"), (24,), ("bias_relu", "bias_relu"))
    a, layers = inputs(chain, np.random.default_rng(3))
    found = enclose(chain, a, layers)
    # A 1x1 convolution is a product of the pixels before it.
    assert found.exact.shape == (2 * 9 * 11, 24)
    assert (found.bound < 0.1).all()


def test_inputs_are_checked():
    a, layers = inputs(CHAIN, np.random.default_rng(4))
    with pytest.raises(InputError, match="inputs for 2 layers; the workload has 3"):
        enclose(CHAIN, a, layers[:2])
    layers[1] = LayerInputs(layers[1].b, ())
    with pytest.raises(InputError, match="0 operands for the 1 loads"):
        enclose(CHAIN, a, layers)
    with pytest.raises(InputError, match=f"takes {DType.F16.value}"):
        enclose(CHAIN, a.astype(np.float32), layers)

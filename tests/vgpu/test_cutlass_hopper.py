"""Warp-specialised GEMMs of CUTLASS 3.x for sm_90a: TMA, multicast in clusters, wgmma."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from benchmarks.harness.driver import Driver
from benchmarks.harness.hopper_gemms import GEMMS, Product, build_gemms
from boltgen.device.vgpu import Vgpu
from tests.vgpu.fragments import instruction_sets


@pytest.fixture(scope="session")
def gemms(loaded: Vgpu) -> ctypes.CDLL:
    return ctypes.CDLL(str(build_gemms()))


# Whole tiles of 128 x 128; more than a wave's; ragged in all three dimensions, and an odd number of
# tiles for the clusters of two.
SHAPES = [(256, 128, 256), (512, 384, 128), (328, 264, 208)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", GEMMS)
def test_gemm(hopper: Driver, gemms: ctypes.CDLL, name: str, shape: tuple[int, int, int]) -> None:
    product = Product.random(hopper, name, *shape)
    assert product.launch(gemms) == 0, hopper.vgpu.last_error()
    error, bound = product.errors(hopper.read(product.buffers[3]))
    assert (error <= bound).all()


@pytest.mark.parametrize("name", GEMMS)
def test_every_instruction_set_order_and_thread_gives_the_same_bits(
    hopper: Driver, gemms: ctypes.CDLL, name: str
) -> None:
    product = Product.random(hopper, name, 384, 256, 256)
    assert product.launch(gemms) == 0
    first = hopper.read(product.buffers[3])
    ways = [{"isa": isa} for isa in instruction_sets(hopper)]
    ways += [{"seed": "7"}, {"seed": "0", "copies": "eager"}]
    for options in ways:
        for option, value in options.items():
            hopper.vgpu.set_option(option, value)
        hopper.fill(product.buffers[3], 0xFF)
        assert product.launch(gemms) == 0, options
        found = hopper.read(product.buffers[3])
        np.testing.assert_array_equal(found.view(np.uint8), first.view(np.uint8), str(options))


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", GEMMS)
def test_no_check_has_a_finding(hopper: Driver, gemms: ctypes.CDLL, name: str, seed: int) -> None:
    """Nor where waits return early, as they do with a seed."""
    product = Product.random(hopper, name, 256, 256, 256)
    hopper.vgpu.set_option("seed", seed)
    hopper.vgpu.set_option("check", "memcheck,initcheck,racecheck,synccheck,deadlock")
    hopper.vgpu.clear_findings()
    assert product.launch(gemms) == 0, hopper.vgpu.last_error()
    assert hopper.vgpu.findings() == []


def test_counters_name_the_new_units(hopper: Driver, gemms: ctypes.CDLL) -> None:
    m, n, k = 256, 256, 128
    product = Product.random(hopper, "pingpong_f16", m, n, k)
    hopper.vgpu.set_option("counters", "on")
    try:
        assert product.launch(gemms) == 0
        (counted,) = (c for c in hopper.vgpu.counters() if c["wgmma"])
    finally:
        hopper.vgpu.set_option("counters", "off")
    # Each warp of a warpgroup counts an instruction, with its quarter of the operations.
    assert sum(form["operations"] for form in counted["wgmma"].values()) == 2 * m * n * k

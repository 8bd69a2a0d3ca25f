"""When to stop taking samples."""

from __future__ import annotations

import itertools
import random

from boltgen.measure.protocol import Policy
from boltgen.measure.timing import take_samples


class Stub:
    """Samples of a distribution; remembers how many were asked for."""

    def __init__(self, draw):
        self.draw, self.asked = draw, []

    def __call__(self, count):
        self.asked.append(count)
        return [self.draw() for _ in range(count)]


def test_a_steady_kernel_takes_the_fewest_samples():
    stub = Stub(lambda: 5.0)
    timing = take_samples(stub, lambda: 1410.0, Policy(), launches=4, warm_up_us=0.0)
    assert (timing.median_us, timing.repeats, timing.launches) == (5.0, 10, 4)
    assert timing.clock_mhz == 1410.0
    assert timing.cold_l2


def test_a_noisy_kernel_takes_samples_until_its_median_is_known():
    generator = random.Random(0)
    stub = Stub(lambda: generator.gauss(100.0, 5.0))
    timing = take_samples(
        stub, lambda: None, Policy(most_samples=5000, most_s=60), launches=1, warm_up_us=0.0
    )
    assert 10 < timing.repeats < 5000
    assert timing.high_us - timing.low_us <= 0.04 * timing.median_us
    assert timing.clock_mhz is None


def test_a_hopeless_one_takes_no_more_than_the_cap():
    flips = itertools.cycle([1.0, 100.0])
    timing = take_samples(
        Stub(lambda: next(flips)), lambda: None, Policy(), launches=1, warm_up_us=0.0
    )
    assert timing.repeats == Policy().most_samples


def test_time_ends_it_too():
    flips = itertools.cycle([1.0, 100.0])
    timing = take_samples(
        Stub(lambda: next(flips)), lambda: None, Policy(most_s=0.0), launches=1, warm_up_us=0.0
    )
    assert timing.repeats == 10


def test_the_device_is_kept_busy_first_and_those_samples_do_not_count():
    stub = Stub(iter([50.0, 50.0, *[10.0] * 10]).__next__)
    timing = take_samples(stub, lambda: None, Policy(), launches=10, warm_up_us=1000.0)
    assert stub.asked == [1, 1, 10]
    assert timing.median_us == timing.high_us == 10.0

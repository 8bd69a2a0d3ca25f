"""Slices and shuffles of channels before convolutions: which ones the weights take, and when."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from boltgen.graph.attributes import Convolution
from boltgen.graph.graph import INPUT, Expr, Graph, GraphBuilder
from boltgen.passes.joins import fold_channels
from boltgen.problems.graph_costs import KernelTimes
from boltgen.problems.workload import Workload
from tests.passes.differential import checked, operators

with_folded_channels = checked(fold_channels.with_folded_channels, others=True)

N, H, W, C, K = 2, 5, 4, 24, 8
F16 = "float16"
RNG = np.random.default_rng(0)
_CONVOLUTION = Convolution(
    strides=(1, 1),
    padding=(1, 1, 1, 1),
    dilation=(1, 1),
    groups=1,
    data_layout="NHWC",
    kernel_layout="OHWI",
    out_layout="NHWC",
)


@dataclass(frozen=True)
class Costs:
    """A kernel takes as many us as it has channels, and a copy of a value 20."""

    copy_us: float = 20.0
    move_origin: str = "made up"

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        times = tuple(float(each.single.problem.a_shape[-1]) for each in workloads)
        return KernelTimes(times_us=times, origin="made up")

    def move_us(self, bytes_moved: int, launches: int) -> float:
        assert (bytes_moved, launches) == (2 * N * H * W * (C // 2) * 2, 1)
        return self.copy_us


class Net(GraphBuilder):
    """An image, its channels in another order, and convolutions of a part of them."""

    def x(self) -> int:
        return self.add(Expr(op=INPUT, shape=(N, H, W, C), dtype=F16))

    def convolution(self, x: int, *, groups: int = 1) -> int:
        channels = self.shape(x)[-1] // groups
        weight = RNG.uniform(-1, 1, (K, 3, 3, channels)).astype(np.float16)
        attrs = replace(_CONVOLUTION, groups=groups)
        args = (x, self.constant(weight))
        return self.operator("nn.conv2d", args, (N, H, W, K), F16, attrs)

    def part(self, x: int, axis: int, begin: int, end: int) -> int:
        shape = list(self.shape(x))
        shape[axis] = end - begin
        fields = {"axis": axis, "begin": begin, "end": end}
        return self.operator("strided_slice", (x,), tuple(shape), F16, **fields)

    def shuffled(self, x: int, groups: int = 2) -> int:
        """NCHW, as normalisation leaves a shuffle."""
        split = self.reshape(x, (N, H, W, groups, C // groups))
        return self.reshape(self.permute_dims(split, (0, 4, 3, 1, 2)), (N, C, H, W))

    def last(self, x: int) -> int:
        return self.permute_dims(x, (0, 2, 3, 1))


def _sliced(net: Net) -> int:
    return net.convolution(net.part(net.x(), 3, C // 2, C))


def _shuffled(net: Net) -> int:
    return net.convolution(net.last(net.part(net.shuffled(net.x(), 3), 1, 0, C // 2)))


def _of_two(net: Net) -> tuple[int, int]:
    half = net.part(net.x(), 3, 0, C // 2)
    return net.convolution(half), net.convolution(half)


def _joined(net: Net) -> tuple[int, int]:
    half = net.part(net.x(), 3, 0, C // 2)
    both = net.operator("concat", (half, half), (N, H, W, C), F16, axis=3)
    return net.convolution(half), both


def _graph(build: Callable[[Net], int | tuple[int, ...]]) -> Graph:
    net = Net()
    return net.graph(build(net))


@pytest.mark.parametrize("build", [_sliced, _shuffled, _of_two, _joined])
def test_the_weights_take_the_channels(build: Callable[[Net], int | tuple[int, ...]]) -> None:
    made = with_folded_channels(_graph(build), Costs(copy_us=30.0))
    convolutions = [each for each in made.graph.exprs if each.op == "nn.conv2d"]
    assert all(made.graph[each.args[0]].op == INPUT for each in convolutions)
    assert all(made.graph[each.args[1]].static_shape[-1] == C for each in convolutions)
    assert len(made.notes) == 1
    assert made.notes[0].startswith(f"{C // 2} of {C} channels are taken by the weights of conv 2x")


def test_a_whole_shuffle_is_taken_for_its_bytes() -> None:
    net = Net()
    graph = net.graph(net.convolution(net.last(net.shuffled(net.x()))))

    @dataclass(frozen=True)
    class Whole(Costs):
        def move_us(self, bytes_moved: int, launches: int) -> float:
            assert (bytes_moved, launches) == (2 * N * H * W * C * 2, 1)
            return 1.0

    assert operators(with_folded_channels(graph, Whole()).graph) == ["nn.conv2d"]


def test_times_decide() -> None:
    graph = _graph(_sliced)
    found = with_folded_channels(graph, Costs(copy_us=10.0))
    assert found.graph is graph
    (choice,) = found.choices
    assert choice.reason.endswith(": 24.0 us instead of 22.0 us, made up")
    assert "are copied, not taken by the weights" in choice.reason


def _read_by_another(net: Net) -> tuple[int, int]:
    half = net.part(net.x(), 3, 0, C // 2)
    return net.convolution(half), net.elementwise("exp", half)


def _in_groups(net: Net) -> int:
    return net.convolution(net.part(net.x(), 3, 0, C // 2), groups=4)


def _of_other_pixels(net: Net) -> int:
    wide = net.reshape(net.x(), (N, W, H, C))
    turned = net.permute_dims(wide, (0, 2, 1, 3))
    return net.convolution(net.part(turned, 3, 0, C // 2))


def _of_fewer_pixels(net: Net) -> int:
    tall = net.add(Expr(op=INPUT, shape=(N, H + 1, W, C // 2), dtype=F16))
    return net.convolution(net.part(tall, 1, 1, H + 1))


@pytest.mark.parametrize(
    "build", [_read_by_another, _in_groups, _of_other_pixels, _of_fewer_pixels]
)
def test_other_values_stay(build: Callable[[Net], int | tuple[int, ...]]) -> None:
    graph = _graph(build)
    found = with_folded_channels(graph, Costs())
    assert found.graph is graph
    assert found.choices == ()

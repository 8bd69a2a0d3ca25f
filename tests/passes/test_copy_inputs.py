"""Concatenations of a depthwise convolution with its input: which ones its kernel writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from boltgen.graph.attributes import Convolution
from boltgen.graph.graph import INPUT, Expr, Graph, GraphBuilder
from boltgen.passes.joins import copy_inputs
from boltgen.passes.outline import Symbols
from boltgen.passes.regions.products import find_products
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.graph_costs import KernelTimes
from boltgen.problems.workload import Workload
from tests.passes.carved import carve
from tests.passes.differential import checked, operators

with_copied_inputs = checked(copy_inputs.with_copied_inputs, others=True)

N, H, W, C = 2, 5, 4, 12
F16 = "float16"
RNG = np.random.default_rng(0)


@dataclass(frozen=True)
class Costs:
    """A kernel that writes both halves takes `joined` us, another one, and a pass of TVM's one."""

    joined: float = 1.5
    tensors: tuple[int, ...] = (2,)
    move_origin: str = "made up"

    def kernels_us(self, workloads: Sequence[Workload]) -> KernelTimes:
        problems = (each.single.problem for each in workloads)
        times = (self.joined if getattr(each, "with_input", False) else 1.0 for each in problems)
        return KernelTimes(times_us=tuple(times), origin="made up")

    def move_us(self, bytes_moved: int, launches: int) -> float:
        assert launches == 1
        assert bytes_moved in {count * N * H * W * 2 * C * 2 for count in self.tensors}
        return 1.0


class Net(GraphBuilder):
    """A GhostNet block's operators."""

    def x(self, channels: int = C) -> int:
        return self.add(Expr(op=INPUT, shape=(N, H, W, channels), dtype=F16))

    def rows(self, *shape: int) -> int:
        return self.constant(RNG.uniform(-1, 1, shape).astype(np.float16))

    def depthwise(self, x: int, *, stride: int = 1) -> int:
        attrs = Convolution(
            strides=(stride, stride),
            padding=(1, 1, 1, 1),
            dilation=(1, 1),
            groups=C,
            data_layout="NHWC",
            kernel_layout="HWOI",
            out_layout="NHWC",
        )
        shape = (N, -(-H // stride), -(-W // stride), C)
        return self.operator("nn.conv2d", (x, self.rows(3, 3, C, 1)), shape, F16, attrs)

    def biased(self, x: int) -> int:
        return self.elementwise("add", x, self.rows(1, 1, 1, C))

    def relu(self, x: int) -> int:
        return self.elementwise("nn.relu", x)

    def clip(self, x: int, low: float, high: float) -> int:
        return self.elementwise("clip", x, low=low, high=high)

    def joined(self, *parts: int) -> int:
        shape = (*self.shape(parts[0])[:-1], sum(self.shape(part)[-1] for part in parts))
        return self.operator("concat", parts, shape, F16, axis=3)


def nothing(workload: Workload) -> str | None:
    del workload
    return None


def _plain(net: Net) -> int:
    x = net.x()
    return net.joined(x, net.biased(net.depthwise(x)))


def _clamped(net: Net) -> int:
    x = net.relu(net.x())
    return net.joined(x, net.relu(net.biased(net.depthwise(x))))


def _clamped_twice(net: Net) -> int:
    x = net.clip(net.clip(net.x(), 0.0, np.inf), -np.inf, 0.5)
    own = net.clip(net.clip(net.biased(net.depthwise(x)), 0.0, np.inf), -np.inf, 0.5)
    return net.joined(x, own)


def _residual(net: Net) -> int:
    return net.elementwise("add", _plain(net), net.x(2 * C))


def _with_joined_before(net: Net) -> int:
    """Two blocks, the first of which is written so already."""
    x = net.x()
    first = net.joined(x, net.depthwise(x))
    own = net.x()
    return net.joined(first, net.joined(own, net.biased(net.depthwise(own))))


def _problems(graph: Graph) -> list[Depthwise]:
    problems = (product.problem(graph) for product in find_products(graph))
    return [each for each in problems if isinstance(each, Depthwise)]


@pytest.mark.parametrize("build", [_plain, _clamped, _clamped_twice])
def test_a_kernel_writes_the_input_too(build: Callable[[Net], int]) -> None:
    net = Net()
    found = with_copied_inputs(net.graph(build(net)), Costs(), nothing)
    (problem,) = _problems(found.graph)
    assert problem.with_input
    assert problem.d_shape == (N, H, W, 2 * C)
    (note,) = found.notes
    assert note == (
        "a convolution's input and result, depthwise 2x5x4x12 to 24, 3x3, with its input, are "
        "written by one kernel: 1.5 us instead of 2.0 us, made up"
    )


def test_operators_after_the_concatenation_are_its_epilogue() -> None:
    net = Net()
    found = with_copied_inputs(net.graph(_residual(net)), Costs(tensors=(2, 3)), nothing)
    carved, (region,) = carve(found.graph, Symbols(()))
    assert operators(carved) == ["region"]
    assert region.region.label == "conv2d + concat + add + add"


def test_minus_zero_stays() -> None:
    net = Net()
    graph = net.graph(_plain(net))
    made = with_copied_inputs(graph, Costs(), nothing).graph
    (bias,) = (
        each.array for each in made.exprs if each.array is not None and each.array.size == 2 * C
    )
    assert bias.shape == (1, 1, 1, 2 * C)
    assert np.signbit(bias[..., :C]).all()
    assert not bias[..., :C].any()


def test_a_concatenation_right_after_its_convolution_stays_as_it_is() -> None:
    net = Net()
    graph = net.graph(_with_joined_before(net))
    made = with_copied_inputs(graph, Costs(), nothing)
    assert [each.with_input for each in _problems(graph)] == [True, False]
    assert [each.with_input for each in _problems(made.graph)] == [True, True]
    assert len(made.choices) == 1


def _silu(net: Net) -> int:
    x = net.elementwise("nn.silu", net.x())
    return net.joined(x, net.elementwise("nn.silu", net.biased(net.depthwise(x))))


def _unclamped(net: Net) -> int:
    x = net.biased(net.x())
    return net.joined(x, net.relu(net.depthwise(x)))


def _other_clamp(net: Net) -> int:
    x = net.clip(net.x(), -1.0, 1.0)
    return net.joined(x, net.clip(net.depthwise(x), -0.5, 0.5))


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (_silu, "silu after the convolution changes the input"),
        (_unclamped, "the input is not known to have gone through the relu after it"),
        (_other_clamp, "the input is not known to have gone through the clip after it"),
    ],
)
def test_an_epilogue_that_changes_the_input_is_refused(
    build: Callable[[Net], int], reason: str
) -> None:
    net = Net()
    graph = net.graph(build(net))
    found = with_copied_inputs(graph, Costs(), nothing)
    assert found.graph is graph
    (choice,) = found.choices
    assert choice.reason == f"a concatenation with the input of a convolution stays: {reason}"


def _swapped(net: Net) -> int:
    x = net.x()
    return net.joined(net.depthwise(x), x)


def _of_another(net: Net) -> int:
    return net.joined(net.x(), net.depthwise(net.x()))


def _strided(net: Net) -> int:
    x = net.x()
    own = net.depthwise(x, stride=2)
    return net.joined(own, own)


def _of_three(net: Net) -> int:
    x = net.x()
    return net.joined(x, net.depthwise(x), x)


@pytest.mark.parametrize("build", [_swapped, _of_another, _strided, _of_three])
def test_other_concatenations_are_none_of_it(build: Callable[[Net], int]) -> None:
    net = Net()
    graph = net.graph(build(net))
    found = with_copied_inputs(graph, Costs(), nothing)
    assert found.graph is graph
    assert found.choices == ()
    assert not any(problem.with_input for problem in _problems(graph))


def test_times_and_kernels_decide() -> None:
    net = Net()
    graph = net.graph(_plain(net))
    slower = with_copied_inputs(graph, Costs(joined=2.5), nothing)
    assert slower.graph is graph
    assert "not by one kernel: 2.5 us instead of 2.0 us" in slower.choices[0].reason
    refused = with_copied_inputs(graph, Costs(), lambda _: "it is too large")
    assert refused.graph is graph
    assert refused.choices[0].reason.endswith("are joined by TVM: it is too large")

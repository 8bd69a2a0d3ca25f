"""Norms of several axes as norms of rows, and group norms where images lie: values stay."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from boltgen.graph.attributes import ImageNorm
from boltgen.graph.graph import IMAGE_NORM, INPUT, Expr, GraphBuilder
from boltgen.ir.extent import Symbol, symbolic
from boltgen.passes.norms import flatten_axes, image_norms
from boltgen.passes.norms.image_norms import CHANNELS_FIRST, CHANNELS_LAST
from boltgen.problems.workload import Workload
from tests.passes.differential import checked, operators

# The epsilon of a norm becomes a number of FP32.
norms_of_joint_rows = checked(flatten_axes.norms_of_joint_rows, others=True, unit=2.0**-24)
own = partial(checked, others=True, has_sizes=True, unit=2.0**-24)
image_norms_in_place = own(image_norms.image_norms_in_place)
without_image_norms = own(image_norms.without_image_norms)
F32 = "float32"
EPSILON = 2.0**-10


def takes(workload: Workload) -> str | None:
    del workload
    return None


def refuses(workload: Workload) -> str | None:
    del workload
    return "there is no time"


class Net(GraphBuilder):
    """Grows norms."""

    def __init__(self) -> None:
        super().__init__()
        self.rng = np.random.default_rng(0)

    def input(self, *shape: int) -> int:
        return self.add(Expr(op=INPUT, shape=shape, dtype=F32))

    def weight(self, *shape: int) -> int:
        return self.constant((self.rng.integers(1, 17, shape) / 8).astype(np.float32))

    def layer_norm(self, x: int, axes: tuple[int, ...], **flags: bool) -> int:
        own = [self.shape(x)[axis] for axis in axes]
        args = x, self.weight(*own), self.weight(*own)
        attrs = {"axes": axes, "epsilon": EPSILON, "scale": True, "center": True, **flags}
        return self.operator("nn.layer_norm", args, self.shape(x), F32, **attrs)

    def group_norm(self, x: int, groups: int, **flags: bool) -> int:
        shape = self.shape(x)
        args = x, self.weight(shape[1]), self.weight(shape[1])
        attrs = {"groups": groups, "channel_axis": 1, "axes": tuple(range(2, len(shape)))}
        flags = {"scale": True, "center": True, **flags}
        return self.operator("nn.group_norm", args, shape, F32, **attrs, epsilon=EPSILON, **flags)

    def spelled(self, x: int, axes: tuple[int, ...], *, is_rms: bool = False) -> int:
        shape = tuple(1 if n in axes else extent for n, extent in enumerate(self.shape(x)))

        def mean(of: int) -> int:
            return self.operator("mean", (of,), shape, F32, axis=axes, keepdims=True)

        centred = x if is_rms else self.elementwise("subtract", x, mean(x))
        squares = mean(self.elementwise("multiply", centred, centred))
        raised = self.elementwise("add", squares, self.constant(np.array(EPSILON, np.float32)))
        return self.elementwise("multiply", centred, self.elementwise("rsqrt", raised))


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("shape", [(2, 6, 5), (2, 6, 4, 5), (2, 6, 2, 3, 2)])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norms(groups: int, shape: tuple[int, ...], center: bool, scale: bool) -> None:
    b = Net()
    graph = b.graph(b.group_norm(b.input(*shape), groups, scale=scale, center=center))
    found = operators(norms_of_joint_rows(graph))
    assert "nn.group_norm" not in found
    assert (IMAGE_NORM in found) == (len(shape) == 4)
    assert (found[-1] == "add") == center
    expected = int(scale) + (0 if len(shape) == 4 else 2)
    assert found.count("multiply") == expected


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("axes", [(1, 2), (-2, -1), (-1,), (0, 1), (2, 1)])
def test_layer_norms(axes: tuple[int, ...], scale: bool) -> None:
    b = Net()
    graph = b.graph(b.layer_norm(b.input(2, 4, 5), axes, scale=scale))
    found = operators(norms_of_joint_rows(graph))
    assert ("nn.layer_norm" in found) == (axes in {(-1,), (0, 1)})


@pytest.mark.parametrize("is_rms", [False, True])
@pytest.mark.parametrize("axes", [(1, 2), (2, 3), (1, 2, 3), (3,)])
def test_spelled_norms(axes: tuple[int, ...], is_rms: bool) -> None:
    b = Net()
    graph = b.graph(b.spelled(b.input(2, 3, 4, 5), axes, is_rms=is_rms))
    found = operators(norms_of_joint_rows(graph))
    is_image = axes in {(2, 3), (1, 2, 3)} and not is_rms
    assert (IMAGE_NORM in found) == is_image
    is_joint = axes in {(2, 3), (1, 2, 3)} and is_rms
    assert ("reshape" in found) == is_joint


@pytest.mark.parametrize("groups", [2, 6])
@pytest.mark.parametrize("is_affine", [False, True])
def test_images_in_groups_are_joined_again(groups: int, is_affine: bool) -> None:
    """As PyTorch decomposes instance norms, and exporters write group norms."""
    b = Net()
    x = b.input(2, 6, 4, 5)
    apart = b.reshape(x, (2, groups, 6 // groups * 20))
    made = b.spelled(apart, (2,))
    if is_affine:
        for op in ("multiply", "add"):
            tiled = b.operator("tile", (b.weight(groups),), (groups,), F32)
            made = b.elementwise(op, made, b.reshape(tiled, (1, groups, 1)))
    graph = b.graph(b.reshape(made, (2, 6, 4, 5)))
    found = operators(norms_of_joint_rows(graph))
    assert (IMAGE_NORM in found) == (not is_affine or groups == 6)


@pytest.mark.parametrize(
    ("groups", "numbers", "is_group_norm"),
    [
        (3, (1.0, 0.0), True),
        (6, (1.0, 0.0), True),
        (1, (1.0, 0.0), False),  # a norm of all groups together
        (3, (2.0, 0.0), False),
        (3, (1.0, 0.5), False),
    ],
)
@pytest.mark.parametrize("is_reshaped", [False, True])
def test_instance_norms_of_groups_are_group_norms(
    groups: int, numbers: tuple[float, float], *, is_group_norm: bool, is_reshaped: bool
) -> None:
    """As PyTorch exports group norms to ONNX; three or six groups of six channels."""
    b = Net()
    count = max(groups, 3)
    apart = b.reshape(b.input(2, 6, 4, 5), (2, count, 6 // count * 20))

    def filled(number: float) -> int:
        if not is_reshaped:
            return b.constant(np.full(count, number, np.float32))
        return b.reshape(b.constant(np.full((1, count), number, np.float32)), (count,))

    attrs = {"groups": groups, "channel_axis": 1, "axes": (2,), "epsilon": EPSILON}
    args = (apart, *map(filled, numbers))
    made = b.operator("nn.group_norm", args, b.shape(apart), F32, **attrs, scale=True, center=True)
    graph = b.graph(b.reshape(made, (2, 6, 4, 5)))
    found = norms_of_joint_rows(graph)
    assert (IMAGE_NORM in operators(found)) == is_group_norm
    if is_group_norm:
        (norm,) = (expr for expr in found.exprs if expr.op == IMAGE_NORM)
        assert norm.attrs.of(ImageNorm).groups == groups


@pytest.mark.parametrize("name", ["channels", "open channels", "integers", "another type"])
def test_other_images_keep_their_norms(name: str) -> None:
    b = Net()
    if name == "channels":  # which the groups do not share evenly
        graph = b.graph(b.group_norm(b.input(2, 6, 4, 5), 4))
    elif name == "open channels":
        made = b.spelled(b.input(2, 3, symbolic(Symbol("rows", 1, 9)), 5), (2, 3))
        graph = b.graph(made)
    elif name == "integers":
        x = b.add(Expr(op=INPUT, shape=(2, 6), dtype="int32"))
        graph = b.graph(b.reshape(x, (3, 4)))
    else:
        apart = b.reshape(b.input(2, 6, 4, 5), (2, 2, 60))
        graph = b.graph(b.reshape(b.astype(b.spelled(apart, (2,)), "float16"), (2, 6, 4, 5)))
    assert IMAGE_NORM not in operators(norms_of_joint_rows(graph))


def test_group_norms_of_other_axes_stay() -> None:
    b = Net()
    x = b.input(2, 4, 5, 6)
    attrs = {"groups": 2, "channel_axis": 3, "axes": (1, 2), "epsilon": EPSILON}
    flags = {"scale": True, "center": True}
    args = x, b.weight(6), b.weight(6)
    made = b.operator("nn.group_norm", args, (2, 4, 5, 6), F32, **attrs, **flags)
    graph = b.graph(made)
    assert norms_of_joint_rows(graph) is graph


def test_a_reshape_that_is_no_inverse_stays() -> None:
    b = Net()
    apart = b.reshape(b.input(2, 6, 4, 5), (2, 2, 60))
    graph = b.graph(b.reshape(b.spelled(apart, (2,)), (2, 6, 5, 4)))
    assert IMAGE_NORM not in operators(norms_of_joint_rows(graph))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([(2, 6, 4, 5), (1, 4, 3, 2), (3, 8, 6)]),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5), st.booleans()), max_size=4),
)
def test_any_norms_compute_the_same(
    shape: tuple[int, ...], steps: list[tuple[int, int, bool]]
) -> None:
    b = Net()
    x = b.input(*shape)
    for kind, which, flag in steps:
        axes = tuple(range(1 + which % (len(shape) - 1), len(shape)))
        match kind:
            case 0:
                x = b.group_norm(x, (1, 2, shape[1])[which % 3], scale=flag)
            case 1:
                x = b.layer_norm(x, axes, center=flag)
            case 2:
                x = b.spelled(x, axes, is_rms=flag)
            case 3:
                x = b.elementwise("add", x, b.weight(*shape[1:]))
    norms_of_joint_rows(b.graph(x))


@pytest.mark.parametrize("groups", [1, 2, 8])
@pytest.mark.parametrize("axis", [CHANNELS_FIRST, CHANNELS_LAST])
def test_group_norms_of_images(axis: int, groups: int) -> None:
    def build(dtype: str) -> tuple[Net, int]:
        b = Net()
        shape = (2, 8, 3, 5) if axis == CHANNELS_FIRST else (2, 3, 5, 8)
        x = b.add(Expr(op=INPUT, shape=shape, dtype=dtype))
        options = {"groups": groups, "epsilon": EPSILON, "channel_axis": axis}
        return b, b.operator(IMAGE_NORM, (x,), shape, dtype, **options)

    b, made = build("float16")
    graph = b.graph(made)
    assert IMAGE_NORM not in operators(without_image_norms(graph))
    placed = image_norms_in_place(graph, takes)
    assert (IMAGE_NORM in operators(placed.graph)) == (axis == CHANNELS_LAST)
    assert placed.notes == ()
    moved = image_norms_in_place(graph, refuses)
    found = operators(moved.graph)
    assert IMAGE_NORM not in found
    assert found.count("permute_dims") == (2 if axis == CHANNELS_LAST else 0)
    if axis == CHANNELS_LAST:
        assert (
            "is computed in NCHW, with transpositions around it: there is no time"
            in (moved.notes[0])
        )

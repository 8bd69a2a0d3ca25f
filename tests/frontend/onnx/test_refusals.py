"""Forms of operators that TVM computes wrongly: written otherwise, or refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, numpy_helper
from tvm import relax

from benchmarks.cases.onnx_models import model, node, noise, operators, prepared, results
from boltgen.errors import ModelImportError
from boltgen.frontend.onnx import prepare, relay_importer
from boltgen.frontend.relax import import_model


def run(made: onnx.ModelProto, *inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What TVM computes on the host."""
    machine = relax.VirtualMachine(tvm.compile(import_model(made).module, target="llvm"), tvm.cpu())
    found: np.ndarray[Any, Any] = machine["main"](*map(tvm.runtime.tensor, inputs)).numpy()
    return found


def refused(made: onnx.ModelProto) -> str:
    with pytest.raises(ModelImportError) as caught:
        prepared(made)
    return str(caught.value)


def suppression(*limits: str, **constants: Any) -> onnx.ModelProto:
    single = node("NonMaxSuppression", ["boxes", "x", *limits], ["y"], name="nms")
    # The second overlaps the first by a half, the third neither.
    boxes = np.array([[[0, 0, 1, 1], [0, 0, 1, 0.5], [2, 2, 3, 3]]], np.float32)
    return model([single], {"x": (1, 1, 3)}, {"boxes": boxes, **constants}, opset=11)


def test_boxes_that_overlap_by_as_much_as_the_threshold_stay() -> None:
    limits = {"most": np.int64(5), "iou": np.float32(0.5), "score": np.float32(-1)}
    scores = np.array([[[0.9, 0.8, -0.5]]], np.float32)
    made = suppression(*limits, **limits)
    (wanted,) = results(made, {"x": scores})
    assert len(wanted) == 3
    np.testing.assert_array_equal(run(made, scores), wanted)


def test_without_a_threshold_of_scores_all_are_taken() -> None:
    limits = {"most": np.int64(5), "iou": np.float32(0.5)}
    scores = np.array([[[0.9, 0.8, -0.5]]], np.float32)
    made = suppression(*limits, **limits)
    np.testing.assert_array_equal(run(made, scores), results(made, {"x": scores})[0])


def test_a_threshold_that_is_computed_is_refused() -> None:
    made = suppression("most", "iou", most=np.int64(5))
    made.graph.node.insert(0, node("ReduceMax", ["x"], ["iou"], keepdims=0))
    said = refused(made)
    assert "NonMaxSuppression (node 'nms'" in said
    assert "iou_threshold" in said


def align(**attributes: Any) -> onnx.ModelProto:
    single = node(
        *("RoiAlign", ["x", "rois", "batch"], ["y"], "roi"),
        output_height=3, output_width=3, sampling_ratio=2, **attributes,
    )  # fmt: skip
    rois = np.array([[1, 2, 11, 13], [0, 0, 6, 5]], np.float32)
    return model([single], {"x": (1, 2, 8, 8)}, {"rois": rois, "batch": np.zeros(2, int)})


@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
def test_regions_of_a_smaller_image(coordinates: str) -> None:
    made = align(spatial_scale=0.5, coordinate_transformation_mode=coordinates)
    x = noise(1, 2, 8, 8)
    # Four weighted sums of numbers of size 4 in FP32.
    np.testing.assert_allclose(run(made, x), results(made, {"x": x})[0], rtol=2**-16, atol=2**-16)


def test_regions_that_are_refused() -> None:
    assert "RoiAlign (node 'roi': mode is max" in refused(align(mode="max"))
    relay = relay_importer(frozenset({"RoiAlign", "Mul"}))
    with pytest.raises(ModelImportError, match=r"'roi': .*half_pixel"):
        prepare(align(), {}, relay)
    assert prepare(align(coordinate_transformation_mode="output_half_pixel"), {}, relay).model


@pytest.mark.parametrize(("amount", "is_taken"), [(7, True), (8, False)])
def test_shifts_by_more_than_the_width(amount: int, is_taken: bool) -> None:
    shift = node("BitShift", ["x", "by"], ["y"], direction="LEFT", name="shift")
    by = {"by": np.array([amount], np.uint8)}
    made = model([shift], {"x": (4,)}, by, dtype=TensorProto.UINT8)
    if is_taken:
        assert operators(prepared(made).model) == ["BitShift"]
    else:
        assert "BitShift (node 'shift': it shifts uint8" in refused(made)


@pytest.mark.parametrize("extent", [0, "rows"])
def test_sums_over_nothing(extent: int | str) -> None:
    made = model([node("ReduceMax", ["x"], ["y"], axes=[1], name="most")], {"x": (2, extent, 4)})
    if extent == 0:
        assert "ReduceMax (node 'most': it reduces an extent of 0" in refused(made)
        assert prepared(made, x=(2, 3, 4)).model
    else:
        assert operators(prepared(made).model) == ["ReduceMax"]
    other = model([node("ReduceMax", ["x"], ["y"], axes=[2])], {"x": (2, extent, 4)})
    assert operators(prepared(other).model) == ["ReduceMax"]


def test_bounds_of_another_type_are_refused() -> None:
    made = model([node("Clip", ["x", "low"], ["y"], name="cut")], {"x": (4,)}, {"low": np.int32(0)})
    assert "Clip (node 'cut': it clips float32 to bounds of type int32" in refused(made)


@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_dropout_that_trains(ratio: float) -> None:
    constants = {"ratio": np.float32(ratio), "training": np.bool_(True)}
    single = node("Dropout", ["x", "ratio", "training"], ["y"], name="drop")
    made = model([single], {"x": (2, 4)}, constants)
    if ratio:
        assert "Dropout (node 'drop'" in refused(made)
    else:
        assert operators(prepared(made).model) == ["Identity"]


def test_a_form_in_a_branch_is_refused_and_one_that_nothing_reads_is_not() -> None:
    region = node("ReduceMax", ["x"], ["m"], axes=[1], keepdims=0, name="inside")
    branch = onnx.helper.make_graph(
        [region], "g", [], [onnx.helper.make_empty_tensor_value_info("m")]
    )
    nodes = [
        node("ReduceMin", ["x"], ["unread"], axes=[1]),
        node("If", ["c"], ["y"], then_branch=branch, else_branch=branch),
    ]
    made = model(nodes, {"x": (2, 0)})
    condition = onnx.helper.make_tensor_value_info("c", TensorProto.BOOL, [])
    made.graph.input.append(condition)
    said = refused(made)
    assert "'inside'" in said
    assert "ReduceMin" not in said


def test_nan_that_nothing_reads_is_no_reason_to_refuse() -> None:
    made = model([node("Relu", ["x"], ["y"])], {"x": (2, 4)})
    made.graph.initializer.append(numpy_helper.from_array(np.float32([0, 1, 2, np.nan]), "spare"))
    assert import_model(made).inputs
    made.graph.node[0].CopyFrom(node("Add", ["x", "spare"], ["y"]))
    with pytest.raises(ModelImportError, match="'spare' contains NaN"):
        import_model(made)


def test_relays_clip_with_crossed_bounds_is_max_and_min() -> None:
    clip = node("Clip", ["x", "low", "high"], ["y"], name="clip")
    bounds = {"low": np.float32(2), "high": np.float32(1)}
    made = model([clip], {"x": (3,)}, bounds, opset=13)
    written = prepare(made, {}, relay_importer(frozenset({"Clip", "Max", "Min"}))).model
    assert operators(written) == ["Max", "Min"]
    x = {"x": np.array([0.0, 1.5, 3.0], np.float32)}
    np.testing.assert_array_equal(results(written, x)[0], np.ones(3))
    np.testing.assert_array_equal(results(made, x)[0], np.ones(3))


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_relays_pools_whose_last_window_is_padding_are_refused(kind: str) -> None:
    def pool(pads: list[int]) -> onnx.ModelProto:
        attributes = {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1, "pads": pads}
        single = node(kind, ["x"], ["y"], name="pool", **attributes)
        return model([single], {"x": (1, 1, 4, 4)}, opset=19)

    relay = relay_importer(frozenset({kind}))
    assert operators(prepare(pool([0, 0, 0, 0]), {}, relay).model) == [kind]
    with pytest.raises(ModelImportError, match=rf"{kind}.*pool.*ceil_mode"):
        prepare(pool([0, 0, 1, 1]), {}, relay)

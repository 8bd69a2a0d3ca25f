"""The graph builder: parameters, scaling, and the messages of its errors."""

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from models.onnx_graph import GraphBuilder, _taps_inside, parameter_count
from models.parameters import RandomParameters, Uniform


def _conv_weight(model: onnx.ModelProto) -> np.ndarray:
    weight = next(t for t in model.graph.initializer if t.name == "conv.weight")
    return numpy_helper.to_array(weight)


def _one_conv(image_size: int = 8, dtype: str = "float32", channels: int = 8) -> onnx.ModelProto:
    graph = GraphBuilder("test", parameters=RandomParameters(3), dtype=dtype)
    x = graph.input("input", (2, 4, image_size, image_size))
    x = graph.conv(x, "conv", channels=channels, kernel=3, padding=1)
    graph.output(graph.relu(x, "relu"), "result")
    return graph.build()


def test_output_takes_the_given_name() -> None:
    model = _one_conv()
    assert [value.name for value in model.graph.output] == ["result"]
    assert model.graph.node[-1].output == ["result"]
    onnx.checker.check_model(model, full_check=True)


def test_float16_models_hold_float16_everywhere() -> None:
    model = _one_conv(dtype="float16")
    assert {t.data_type for t in model.graph.initializer} == {onnx.TensorProto.FLOAT16}
    assert model.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    assert np.array_equal(_conv_weight(model), _conv_weight(_one_conv()).astype(np.float16))


@pytest.mark.parametrize(
    ("window", "taps"),
    [
        ((8, 1, 1, 0), 1.0),
        ((8, 3, 1, 0), 3.0),
        ((2, 3, 1, 1), 2.0),
        ((1, 3, 1, 1), 1.0),
        ((4, 3, 1, 1), 2.5),
        ((4, 3, 2, 1), 2.5),
    ],
)
def test_taps_inside_count_data_not_padding(window: tuple[int, int, int, int], taps: float) -> None:
    assert _taps_inside(*window) == pytest.approx(taps)


def test_weights_grow_where_padding_leaves_less_data() -> None:
    ratio = _conv_weight(_one_conv(image_size=1)) / _conv_weight(_one_conv(image_size=512))
    assert ratio == pytest.approx(np.full_like(ratio, 3.0), rel=0.01)


def test_a_name_cannot_be_used_twice() -> None:
    graph = GraphBuilder("test", parameters=RandomParameters(0))
    x = graph.input("input", (1, 4))
    x = graph.relu(x, "relu")
    with pytest.raises(ValueError, match="'relu' is used twice in test"):
        graph.relu(x, "relu")


def test_impossible_shapes_are_rejected_with_their_numbers() -> None:
    graph = GraphBuilder("test", parameters=RandomParameters(0))
    x = graph.input("input", (1, 4, 2, 2))
    with pytest.raises(ValueError, match=r"Conv 'conv' would have an empty shape \(1, 8, 0, 0\)"):
        graph.conv(x, "conv", channels=8, kernel=3)
    with pytest.raises(ValueError, match=r"\(1, 4, 2, 2\) does not reshape to \(1, 15\)"):
        graph.reshape(x, "reshape", (1, 15))
    with pytest.raises(ValueError, match=r"\(1, 4, 2, 2\) and \(1, 4, 3, 2\) do not multiply"):
        graph.matmul(x, graph.input("other", (1, 4, 3, 2)), "matmul")
    with pytest.raises(ValueError, match=r"input 'none' .* \(0, 4\)"):
        graph.input("none", (0, 4))


def test_an_unknown_dtype_is_rejected() -> None:
    with pytest.raises(ValueError, match="'int8' is not one of float32, float16"):
        GraphBuilder("test", parameters=RandomParameters(0), dtype="int8")  # type: ignore[arg-type]


def test_parameter_count_leaves_out_running_statistics() -> None:
    graph = GraphBuilder("test", parameters=RandomParameters(0))
    x = graph.input("input", (1, 4, 8, 8))
    x = graph.conv(x, "conv", channels=8, kernel=3, bias=False)
    graph.output(graph.batch_norm(x, "bn", scale=Uniform(low=1.0, high=2.0)), "result")
    assert parameter_count(graph.build()) == 8 * 4 * 9 + 2 * 8

"""Models that `boltgen.quantize` writes, in ONNX Runtime and in boltgen's passes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime import quantization

import boltgen
from boltgen.errors import BoltgenError, InputError, ModelImportError
from boltgen.pipeline import PipelineOptions
from boltgen.quantiser import model as loader
from boltgen.quantiser.layers import layers_of
from boltgen.quantiser.observers import Histogram
from boltgen.quantiser.quantise import QuantisationReport
from boltgen.quantiser.smoothing import smoothed
from boltgen.tvm_build.model import import_model, partition
from models.digits import load_heldout
from tests.quantiser.networks import drawn, mlp, residual_block, written

DIGITS = Path("models/digits/digits.onnx")
Array = np.ndarray[Any, Any]


def results(path: Path, *samples: Array) -> Array:
    """What ONNX Runtime computes, operator by operator."""
    runner = loader.Runner(onnx.load(path))
    (name,) = (each.name for each in onnx.load(path).graph.input)
    return np.concatenate([runner.results({name: each})[0] for each in samples])


def operators(path: Path) -> list[str]:
    return [node.op_type for node in onnx.load(path).graph.node]


@pytest.fixture
def images() -> list[Array]:
    return list(load_heldout().batches())


def test_digits_lose_no_accuracy(images: list[Array], tmp_path: Path) -> None:
    heldout, path = load_heldout(), tmp_path / "int8.onnx"
    given = {"input": np.concatenate(images[:2])}
    report = boltgen.quantize(DIGITS, given, path, even_if_slower=True)
    assert report.quantised == len(report.layers) == 11
    assert report.error < 0.03
    right = heldout.accuracy(results(DIGITS, *images))
    assert heldout.accuracy(results(path, *images)) >= right - 0.003


def test_boltgen_multiplies_integers_in_the_layers_that_are_quantised(
    images: list[Array], tmp_path: Path
) -> None:
    path = tmp_path / "int8.onnx"
    report = boltgen.quantize(DIGITS, {"input": images[0]}, path)
    assert 0 < report.quantised < len(report.layers)
    assert report.quantised_us < report.float_us
    options = PipelineOptions()
    imported = import_model(path, options)
    partition(imported, "sm_80", options)
    layers = [layer for region in imported.regions for layer in region.workload.layers]
    whole = [layer for layer in layers if layer.problem.in_dtype.is_whole]
    assert len(whole) == report.quantised
    assert len(layers) == len(report.layers)


def test_the_error_is_no_larger_than_onnx_runtimes(images: list[Array], tmp_path: Path) -> None:
    """Both have seen the same samples, and quantise the same layers by the least and largest."""

    class Reader(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self._left = [{"input": each} for each in images[:2]]

        def get_next(self) -> dict[str, Array] | None:
            return self._left.pop() if self._left else None

    ours, theirs = tmp_path / "ours.onnx", tmp_path / "theirs.onnx"
    given = {"input": np.concatenate(images[:2])}
    report = boltgen.quantize(DIGITS, given, ours, even_if_slower=True)
    quantization.quantize_static(
        DIGITS,
        theirs,
        Reader(),
        per_channel=True,
        nodes_to_quantize=[each.name for each in report.layers if each.is_quantised],
        extra_options={"ActivationSymmetric": True},
    )
    right = results(DIGITS, *images)
    errors = [np.square(results(path, *images) - right).mean() for path in (ours, theirs)]
    assert errors[0] <= 1.02 * errors[1]


def test_a_residual_is_added_before_the_result_is_rounded(tmp_path: Path) -> None:
    path = tmp_path / "int8.onnx"
    block = residual_block(tmp_path / "block.onnx", 128)
    samples = {"x": drawn(8, 128, 12, 12)}
    report = boltgen.quantize(block, samples, path, most_error=0.1, even_if_slower=True)
    assert [each.is_quantised for each in report.layers] == [True, True]
    # Nothing is quantised between the second convolution and the sum; the residual is the same
    # integers as the first convolution's activation.
    assert operators(path).count("QuantizeLinear") == 2
    graph = onnx.load(path).graph
    (add,) = (node for node in graph.node if node.op_type == "Add")
    (first, _) = (node for node in graph.node if node.op_type == "Conv")
    assert first.input[0] in add.input


def test_smoothing_changes_no_result_and_makes_an_outlier_small(tmp_path: Path) -> None:
    plain = loader.load(mlp(tmp_path / "mlp.onnx"))
    layers, samples = layers_of(plain.graph), [{"x": drawn(8, 64, seed=each)} for each in range(3)]
    names = tuple({each.activation for each in layers})

    def observed(model: onnx.ModelProto) -> dict[str, Histogram]:
        seen, runner = {name: Histogram() for name in names}, loader.Runner(model, names)
        for sample in samples:
            for name, array in runner.tensors(sample).items():
                if name in seen:
                    seen[name].see_range(array)
                    seen[name].see_channels(array)
        return seen

    before = observed(plain)
    model, changed = smoothed(plain, layers, before, 0.5)
    assert changed == ("n",)
    after = observed(model)
    spread = [seen["n"].channels.max() / np.median(seen["n"].channels) for seen in (before, after)]
    assert spread[0] > 20
    assert spread[1] < 6
    pair = [loader.Runner(each).results(samples[0])[0] for each in (plain, model)]
    assert np.abs(pair[0] - pair[1]).max() <= 1e-5 * np.abs(pair[0]).max()


def test_smoothing_lessens_the_error(tmp_path: Path) -> None:
    network = mlp(tmp_path / "mlp.onnx", 512, 256)
    samples = {"x": drawn(256, 512)}
    errors = [
        boltgen.quantize(
            network,
            samples,
            tmp_path / "q.onnx",
            smooth=each,
            observer="minmax",
            most_error=9.0,
            even_if_slower=True,
        ).error
        for each in (0.0, 0.5)
    ]
    assert 0.0 < errors[1] < 0.7 * errors[0]


def test_layers_go_back_to_floats_until_the_error_is_small_enough(
    images: list[Array], tmp_path: Path
) -> None:
    given = {"input": np.concatenate(images[:2])}

    def quantised(name: str, **options: float) -> QuantisationReport:
        return boltgen.quantize(DIGITS, given, tmp_path / name, even_if_slower=True, **options)

    whole = quantised("whole.onnx")
    part = quantised("part.onnx", most_error=whole.error / 2)
    assert 0 < part.quantised < whole.quantised
    assert 0.0 < part.error <= whole.error / 2
    dropped = [each for each in part.layers if "the model's error exceeds" in each.reason]
    assert len(dropped) == whole.quantised - part.quantised
    none = quantised("none.onnx", most_error=1e-9)
    assert (none.quantised, none.error) == (0, 0.0)
    assert "QuantizeLinear" not in operators(tmp_path / "none.onnx")


def test_a_model_that_is_no_faster_in_integers_stays_in_floats(tmp_path: Path) -> None:
    """The kernel of the first matmul, which stays in floats, stores no integers for the second."""
    network = written(
        tmp_path / "two.onnx",
        """n (float[64, 1024] x) => (float[64, 1024] y) {
            h = MatMul (x, w0)
            r = Relu (h)
            y = MatMul (r, w1)
        }""",
        {f"w{each}": drawn(1024, 1024, seed=each, scale=0.05) for each in range(2)},
    )
    given = {"x": drawn(64, 1024)}
    report = boltgen.quantize(network, given, tmp_path / "q.onnx", keep=["h"])
    _, layer = report.layers
    assert layer.reason == "the whole model is predicted to be faster without it"
    assert layer.integer_us is not None
    assert layer.float_us is not None
    assert layer.integer_us < layer.float_us
    assert (report.quantised, report.error) == (0, 0.0)
    assert report.quantised_us == report.float_us
    slower = boltgen.quantize(network, given, tmp_path / "q.onnx", keep=["h"], even_if_slower=True)
    assert slower.quantised == 1
    assert slower.quantised_us > slower.float_us


def test_a_layer_that_the_user_keeps_stays(images: list[Array], tmp_path: Path) -> None:
    path = tmp_path / "q.onnx"
    report = boltgen.quantize(DIGITS, {"input": images[0]}, path, keep=["stages.2.residual"])
    (kept,) = (each for each in report.layers if each.name == "stages.2.residual")
    assert (kept.is_quantised, kept.reason, kept.error) == (False, "you keep it", None)
    (node,) = (each for each in onnx.load(path).graph.node if each.name == "stages.2.residual")
    assert not any("quantized" in name for name in node.input)


def test_what_no_kernel_of_integers_computes_stays_with_its_reason(tmp_path: Path) -> None:
    path = written(
        tmp_path / "depthwise.onnx",
        """net (float[1, 64, 8, 8] x) => (float[1, 1, 1, 1] y) {
            d = Conv <kernel_shape = [3, 3], group = 64> (x, w0)
            y = Conv <kernel_shape = [6, 6]> (d, w1)
        }""",
        {"w0": drawn(64, 1, 3, 3), "w1": drawn(1, 64, 6, 6)},
    )
    report = boltgen.quantize(path, {"x": drawn(1, 64, 8, 8)}, tmp_path / "q.onnx")
    depthwise, column = report.layers
    assert depthwise.reason == "a depthwise convolution has no kernel of integers"
    assert not column.is_quantised
    assert report.quantised == 0


def test_weights_of_subgraphs_and_names_that_are_taken_stay(tmp_path: Path) -> None:
    path = written(
        tmp_path / "taken.onnx",
        """net (float[64, 512] x, bool c) => (float[64, 512] y) {
            x_scale = MatMul (x, w)
            r = If (c) <
                then_branch = t () => (float[512, 512] a) { a = Identity (w) },
                else_branch = e () => (float[512, 512] b) { b = Neg (w) }
            >
            y = MatMul (x_scale, r)
        }""",
        {"w": drawn(512, 512, scale=0.05)},
    )
    given = {"x": drawn(64, 512), "c": np.array(True)}
    report = boltgen.quantize(path, given, tmp_path / "q.onnx", even_if_slower=True)
    assert report.quantised == 1
    onnx.checker.check_model(tmp_path / "q.onnx")
    pair = [loader.Runner(onnx.load(each)).results(given)[0] for each in (path, report.output)]
    assert np.abs(pair[0] - pair[1]).max() <= 0.05 * np.abs(pair[0]).max()


def test_a_batch_normalisation_is_in_the_weights(tmp_path: Path) -> None:
    path = written(
        tmp_path / "bn.onnx",
        """net (float[8, 128, 16, 16] x) => (float[8, 128, 14, 14] y) {
            c = Conv <kernel_shape = [3, 3]> (x, w)
            y = BatchNormalization (c, s, b, m, v)
        }""",
        {
            "w": drawn(128, 128, 3, 3),
            "s": drawn(128, seed=1),
            "b": drawn(128, seed=2),
            "m": drawn(128, seed=3),
            "v": np.abs(drawn(128, seed=4)) + 0.1,
        },
    )
    report = boltgen.quantize(path, {"x": drawn(8, 128, 16, 16)}, tmp_path / "q.onnx")
    assert (report.quantised, operators(report.output).count("BatchNormalization")) == (1, 0)
    assert report.error < 0.03


def _given(**arrays: Any) -> dict[str, Array]:
    return {name: np.asarray(array) for name, array in arrays.items()}


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ({}, ("input", "no array")),
        (_given(input=np.zeros((40, 1, 16, 16))), ("input", "float64", "float32")),
        (_given(input=np.zeros((41, 1, 16, 16), np.float32)), ("41x1x16x16", "multiple of 40")),
        (_given(input=np.zeros((40, 1, 8, 16), np.float32)), ("40x1x8x16", "40x1x16x16")),
        (_given(input=np.full((40, 1, 16, 16), np.nan, np.float32)), ("input", "NaN")),
    ],
)
def test_samples_that_do_not_fit(
    data: dict[str, Array], said: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(InputError) as told:
        boltgen.quantize(DIGITS, data, tmp_path / "q.onnx")
    assert all(each in str(told.value) for each in said)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"smooth": 1.5}, ("smooth", "1.5", "from 0 to 1")),
        ({"most_error": 0.0}, ("most_error", "above 0")),
        ({"most_error": float("nan")}, ("most_error", "nan")),
        ({"observer": "median"}, ("median", "minmax, percentile, entropy, mse")),
        ({"keep": ["stages.9"]}, ("stages.9", "stages.0.entry")),
    ],
)
def test_values_that_no_option_can_have(
    options: dict[str, Any], said: tuple[str, ...], images: list[Array], tmp_path: Path
) -> None:
    with pytest.raises(BoltgenError) as told:
        boltgen.quantize(DIGITS, {"input": images[0]}, tmp_path / "q.onnx", **options)
    assert all(each in str(told.value) for each in said)


def test_models_that_cannot_be_quantised(images: list[Array], tmp_path: Path) -> None:
    once = tmp_path / "once.onnx"
    boltgen.quantize(DIGITS, {"input": images[0]}, once)
    with pytest.raises(ModelImportError, match=r"once\.onnx is quantised already"):
        boltgen.quantize(once, {"input": images[0]}, tmp_path / "twice.onnx")
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(ModelImportError, match=r"text\.onnx cannot be read"):
        boltgen.quantize(tmp_path / "text.onnx", {}, tmp_path / "q.onnx")
    plain = written(tmp_path / "plain.onnx", "n (float[4] x) => (float[4] y) { y = Relu (x) }", {})
    with pytest.raises(BoltgenError, match="no product of an activation by a constant"):
        boltgen.quantize(plain, {"x": drawn(4)}, tmp_path / "q.onnx")


def test_another_programs_file_is_not_replaced(images: list[Array], tmp_path: Path) -> None:
    path = tmp_path / "mine.onnx"
    path.write_bytes(DIGITS.read_bytes())
    with pytest.raises(InputError, match=r"mine\.onnx cannot be written"):
        boltgen.quantize(DIGITS, {"input": images[0]}, path)
    assert path.read_bytes() == DIGITS.read_bytes()
    path.unlink()
    for _ in range(2):  # its own file is replaced
        boltgen.quantize(DIGITS, {"input": images[0]}, path)


def test_a_tensor_that_overflows_on_a_sample_is_named(tmp_path: Path) -> None:
    path = written(
        tmp_path / "inf.onnx",
        "n (float[8, 64] x) => (float[8, 64] y) { e = Exp (x) y = MatMul (e, w) }",
        {"w": drawn(64, 64)},
    )
    with pytest.raises(InputError, match="tensor e becomes NaN or infinite"):
        boltgen.quantize(path, {"x": np.full((8, 64), 200.0, np.float32)}, tmp_path / "q.onnx")


_LINEAR = "n (float[8, 64] x) => (float[8, 64] y{more}) {{ {body} y = MatMul (l, w) }}"
_NORM = {"g": np.linspace(1, 9, 64, dtype=np.float32), "w": drawn(64, 64, scale=0.05)}


@pytest.mark.parametrize(
    ("more", "body", "arrays"),
    [
        # A branch reads the normalised tensor.
        (
            ", float[8, 64] z",
            """l = LayerNormalization <axis = -1> (x, g)
               z = If (c) <then_branch = t () => (float[8, 64] a) { a = Identity (l) },
                           else_branch = e () => (float[8, 64] b) { b = Neg (l) }>""",
            {"c": np.array(True)},
        ),
        # The model returns a tensor between the factors.
        (", float[8, 64] s", "s = Mul (x, g) l = Add (s, b)", {"b": drawn(64)}),
    ],
)
def test_smoothing_changes_no_tensor_that_others_read(
    more: str, body: str, arrays: dict[str, Array], tmp_path: Path
) -> None:
    text = _LINEAR.replace("{more}", more).replace("{body}", body)
    text = text.replace("{{", "{").replace("}}", "}")
    path = written(tmp_path / "read.onnx", text, _NORM | arrays)
    samples = [{"x": drawn(8, 64, seed=each)} for each in range(2)]
    report = boltgen.quantize(path, samples, tmp_path / "q.onnx", even_if_slower=True)
    assert report.smoothed == ()
    pair = [loader.Runner(onnx.load(each)).results(samples[0]) for each in (path, report.output)]
    for right, found in zip(*pair, strict=True):
        assert np.linalg.norm(found - right) <= 0.03 * np.linalg.norm(right)


def test_weights_that_are_listed_as_inputs_are_constants(tmp_path: Path) -> None:
    path = mlp(tmp_path / "listed.onnx", 512, 256)
    model = onnx.load(path)
    for each in model.graph.initializer:
        model.graph.input.append(
            onnx.helper.make_tensor_value_info(each.name, each.data_type, each.dims)
        )
    onnx.save(model, path)
    report = boltgen.quantize(
        path, {"x": drawn(256, 512)}, tmp_path / "q.onnx", most_error=1.0, even_if_slower=True
    )
    assert report.quantised == 2
    assert [each.name for each in onnx.load(report.output).graph.input] == ["x"]


def test_images_of_several_sizes_and_results_of_open_sizes(tmp_path: Path) -> None:
    path = written(
        tmp_path / "open.onnx",
        """n (float[1, 64, h, v] x) => (float[1, 64, h, v] y, int64[4, k] places) {
            y = Conv <kernel_shape = [3, 3], pads = [1, 1, 1, 1]> (x, w)
            above = Greater (y, zero)
            places = NonZero (above)
        }""",
        {"w": drawn(64, 64, 3, 3, scale=0.05), "zero": np.float32(0)},
    )
    samples = [{"x": drawn(1, 64, 8, width)} for width in (8, 12)]
    report = boltgen.quantize(path, samples, tmp_path / "q.onnx", even_if_slower=True)
    assert report.quantised == 1
    assert 0.0 < report.error < 0.03


def test_an_infinity_that_is_right_is_no_error(tmp_path: Path) -> None:
    path = written(
        tmp_path / "masked.onnx",
        "n (float[8, 64] x) => (float[8, 64] y) { p = MatMul (x, w) y = Where (seen, p, low) }",
        {"w": drawn(64, 64), "seen": np.arange(64) > 4, "low": np.float32(-np.inf)},
    )
    report = boltgen.quantize(path, {"x": drawn(8, 64)}, tmp_path / "q.onnx", even_if_slower=True)
    assert report.quantised == 1
    assert 0.0 < report.error < 0.03


def test_layers_of_other_types_and_weights_that_are_no_matrices_stay(tmp_path: Path) -> None:
    path = written(
        tmp_path / "types.onnx",
        """n (float[8, 64] x) => (double[8, 64] y, float[4, 8, 32] z) {
            l = LayerNormalization <axis = -1> (x, g)
            f = MatMul (l, w)
            d = Cast <to = 11> (f)
            y = MatMul (d, wide)
            z = MatMul (l, several)
        }""",
        {
            "g": np.ones(64, np.float32),
            "w": drawn(64, 64),
            "wide": drawn(64, 64).astype(np.float64),
            "several": drawn(4, 64, 32),
        },
    )
    report = boltgen.quantize(path, {"x": drawn(8, 64)}, tmp_path / "q.onnx", even_if_slower=True)
    assert [(each.name, each.is_quantised) for each in report.layers] == [
        ("f", True),
        ("z", False),
    ]


def test_names_of_nodes_are_made_different(tmp_path: Path) -> None:
    path = written(
        tmp_path / "names.onnx",
        "n (float[8, 64] x) => (float[8, 64] y) { h = MatMul (x, w) y = MatMul (h, w) }",
        {"w": drawn(64, 64, scale=0.1)},
    )
    model = onnx.load(path)
    model.graph.node[0].name, model.graph.node[1].name = "y", ""
    onnx.save(model, path)
    report = boltgen.quantize(path, {"x": drawn(8, 64)}, tmp_path / "q.onnx", even_if_slower=True)
    assert [each.name for each in report.layers] == ["y", "y_"]

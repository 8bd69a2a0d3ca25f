"""The trained demo model: accuracy in FP32 and FP16, size, and its re-parameterisation."""

from collections import Counter

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from models.digits import BATCH, MODEL_PATH, Heldout, load_heldout, load_model
from models.digits.network import deploy_graph
from models.fp16 import rounded_to_fp16
from models.parameters import RandomParameters, TrainedParameters


@pytest.fixture(scope="module")
def heldout() -> Heldout:
    return load_heldout()


def _logits(model: onnx.ModelProto, heldout: Heldout, batch: int = BATCH) -> np.ndarray:
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.concatenate([session.run(None, {"input": x})[0] for x in heldout.batches(batch)])


def test_accuracy_holds_in_fp32_and_fp16(heldout: Heldout) -> None:
    model = load_model()
    exact = heldout.accuracy(_logits(model, heldout))
    rounded = heldout.accuracy(_logits(rounded_to_fp16(model), heldout))
    assert exact >= 0.97
    assert exact - rounded <= 0.003


def test_file_is_small_and_valid() -> None:
    assert MODEL_PATH.stat().st_size < 2_000_000
    onnx.checker.check_model(onnx.load(MODEL_PATH), full_check=True)


def test_network_has_what_a_repvgg_style_network_has() -> None:
    nodes = Counter(node.op_type for node in load_model().graph.node)
    assert nodes == {
        "Conv": 9,
        "Relu": 7,
        "HardSwish": 3,
        "Add": 3,
        "GlobalAveragePool": 1,
        "Flatten": 1,
        "Gemm": 2,
    }


def test_heldout_images_are_balanced_and_whole_batches(heldout: Heldout) -> None:
    assert heldout.images.shape == (360, 1, 16, 16)
    assert heldout.images.dtype == np.float32
    assert heldout.labels.dtype == np.int64
    assert all(35 <= count <= 37 for count in np.bincount(heldout.labels, minlength=10))
    pixels = heldout.images * heldout.std + heldout.mean
    assert pixels == pytest.approx(np.round(pixels), abs=1e-4)
    assert (pixels.min(), pixels.max()) == pytest.approx((0.0, 16.0), abs=1e-4)
    assert [len(batch) for batch in heldout.batches()] == [BATCH] * 9


def test_other_batch_sizes_give_the_same_logits(heldout: Heldout) -> None:
    model = load_model(batch=8)
    onnx.checker.check_model(model, full_check=True)
    np.testing.assert_allclose(
        _logits(model, heldout, batch=8), _logits(load_model(), heldout), atol=1e-4
    )


def test_wrong_sizes_are_refused(heldout: Heldout) -> None:
    with pytest.raises(ValueError, match="360 images are no whole number of batches of 7"):
        heldout.batches(7)
    with pytest.raises(ValueError, match=r"shape \(40, 10\), not \(360, 10\)"):
        heldout.accuracy(np.zeros((40, 10)))
    with pytest.raises(ValueError, match="at least 1, got 0"):
        load_model(batch=0)


def test_random_weights_fit_the_same_network() -> None:
    model = deploy_graph(RandomParameters(0), batch=2, dtype="float16")
    onnx.checker.check_model(model, full_check=True)


def test_reparameterisation_computes_the_same(heldout: Heldout) -> None:
    import torch

    from models.digits.training_form import DigitsNetwork, reparameterised

    torch.manual_seed(0)
    network = DigitsNetwork()
    images = torch.from_numpy(heldout.images[:BATCH])
    with torch.no_grad():
        for _ in range(3):
            network(images)  # in training mode: moves the batch norms away from their start
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
        expected = network.eval()(images).numpy()
    model = deploy_graph(TrainedParameters(reparameterised(network)), batch=BATCH)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    actual = session.run(None, {"input": heldout.images[:BATCH]})[0]
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(actual, expected, atol=1e-4, rtol=1e-4)

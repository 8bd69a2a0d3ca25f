"""Whole transformers, one library of each right at several sizes; what TVM keeps is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import numpy_helper
from torch import Tensor, nn

import boltgen
from boltgen.device.vgpu import Vgpu
from boltgen.running.artifact import Artifact
from models import relax_llama
from models.open_transformers import TOKENS, Bert, Llama
from models.torch_transformers import T5, Vit, WhisperEncoder, WhisperStep
from tests.test_end_to_end import fp16_tolerance

Array = np.ndarray[Any, Any]
Inputs = Mapping[str, Array]
WIDTH = 64


def _judged(
    artifact: Artifact,
    inputs: Inputs,
    expected: list[Array],
    checking: Vgpu,
    *,
    layers: int,
    kept: int,
    attentions: int,
) -> None:
    """The artifact's results are `expected`, TVM launches `kept` kernels, and all checks pass."""
    checking.clear_launches()
    outputs = artifact.run(dict(inputs), device="vgpu").values()
    kernels = [launch.kernel for launch in checking.launches()]
    assert [finding.message for finding in checking.findings()] == []
    for output, wide in zip(outputs, expected, strict=True):
        error = float(np.sqrt(np.mean(np.square(output - wide))))
        assert error <= fp16_tolerance(wide, layers)
    assert sum("attention_" in name for name in kernels) == attentions, kernels
    assert sum("boltgen" not in name for name in kernels) == kept, kernels


def _program(
    module: nn.Module,
    made: Callable[..., dict[str, Tensor]],
    sizes: list[tuple[int, ...]],
    checking: Vgpu,
    dynamic: Any = None,
    **counts: int,
) -> None:
    """A module's library, whose example has the last of `sizes`, is right at all of them."""
    artifact = boltgen.compile(
        module.eval(), made(*sizes[-1]), arch="sm_80", dynamic_shapes=dynamic
    )
    for each in sizes:
        inputs = made(*each)
        with torch.no_grad():
            found = module(**inputs)
        expected = [x.numpy() for x in (found if isinstance(found, tuple) else (found,))]
        given = {name: value.numpy() for name, value in inputs.items()}
        _judged(artifact, given, expected, checking, **counts)


def _open(name: str, high: int, low: int = 1) -> torch.export.Dim:
    return torch.export.Dim(name, min=low, max=high)


def test_a_vision_transformer(checking: Vgpu) -> None:
    torch.manual_seed(0)

    def images(batch: int) -> dict[str, Tensor]:
        return {"images": torch.randn(batch, 3, 32, 32)}

    # The class token joins the patches, positions are added, and the token is taken at the end.
    counts = {"layers": 10, "kept": 2, "attentions": 2}
    dynamic = {"images": {0: _open("batch", 4)}}
    _program(Vit(), images, [(1,), (3,), (2,)], checking, dynamic, **counts)


def test_the_encoder_of_whisper(checking: Vgpu) -> None:
    torch.manual_seed(0)

    def mel(batch: int) -> dict[str, Tensor]:
        return {"mel": torch.randn(batch, 16, 60)}

    # A move makes the input FP16 and channels last; positions, which a batch shares, are added.
    _program(WhisperEncoder(), mel, [(2,)], checking, layers=15, kept=0, attentions=2)


def test_a_batch_of_any_size_for_the_encoder_of_whisper(checking: Vgpu) -> None:
    torch.manual_seed(0)

    def mel(batch: int) -> dict[str, Tensor]:
        return {"mel": torch.randn(batch, 16, 60)}

    dynamic = {"mel": {0: _open("batch", 4)}}
    counts = {"layers": 15, "kept": 0, "attentions": 2}
    _program(WhisperEncoder(), mel, [(1,), (3,), (2,)], checking, dynamic, **counts)


def test_a_step_of_the_decoder_of_whisper(checking: Vgpu) -> None:
    torch.manual_seed(0)

    def step(batch: int, before: int) -> dict[str, Tensor]:
        return {
            "x": torch.randn(batch, 1, WIDTH),
            "keys": torch.randn(batch, 4, before, 16),
            "values": torch.randn(batch, 4, before, 16),
            "audio": torch.randn(batch, 30, WIDTH),
        }

    batch, before = _open("batch", 4), _open("before", 40)
    cache = {0: batch, 2: before}
    dynamic = {"x": {0: batch}, "keys": cache, "values": cache, "audio": {0: batch}}
    # Casts of inputs and to results, and the cache's growth.
    counts = {"layers": 10, "kept": 7, "attentions": 2}
    _program(WhisperStep(), step, [(1, 1), (3, 19), (2, 7)], checking, dynamic, **counts)


def _texts(batch: int, source: int, target: int) -> dict[str, Tensor]:
    mask = torch.ones(batch, source, dtype=torch.int64)
    mask[batch // 2 :, source - source // 3 :] = 0
    return {
        "source": torch.randn(batch, source, WIDTH),
        "target": torch.randn(batch, target, WIDTH),
        "attention_mask": mask,
    }


def test_t5_of_one_size(checking: Vgpu) -> None:
    torch.manual_seed(0)
    counts = {"layers": 18, "kept": 1, "attentions": 3}
    _program(T5(), _texts, [(2, 19, 11)], checking, **counts)


def test_t5_of_open_sizes(checking: Vgpu) -> None:
    torch.manual_seed(0)
    batch, source, target = _open("batch", 4), _open("source", 40, 2), _open("target", 40, 2)
    dynamic = {
        "source": {0: batch, 1: source},
        "target": {0: batch, 1: target},
        "attention_mask": {0: batch, 1: source},
    }
    # The biases are made of sizes: no constants of the library.
    counts = {"layers": 18, "kept": 1, "attentions": 3}
    sizes = [(1, 5, 3), (3, 33, 20), (2, 19, 11)]
    _program(T5(), _texts, sizes, checking, dynamic, **counts)


def _tokens(batch: int, length: int) -> dict[str, Tensor]:
    return {"ids": torch.randint(0, TOKENS, (batch, length))}


def _padded_tokens(batch: int, length: int) -> dict[str, Tensor]:
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[batch // 2 :, length - length // 3 :] = 0
    return {**_tokens(batch, length), "attention_mask": mask}


def test_an_encoder_that_cuts_its_positions_out_of_a_table(checking: Vgpu) -> None:
    torch.manual_seed(0)
    axes = {0: _open("batch", 4), 1: _open("length", 40, 2)}
    # A cast of the tokens, their rows, the sum with those of places, and the mask.
    counts = {"layers": 10, "kept": 2, "attentions": 2}
    dynamic = {"ids": axes, "attention_mask": axes}
    _program(Bert(), _padded_tokens, [(1, 5), (3, 40), (2, 19)], checking, dynamic, **counts)


def test_a_decoder_that_makes_its_rotations_and_its_mask(checking: Vgpu) -> None:
    torch.manual_seed(0)
    dynamic = {"ids": {0: _open("batch", 4), 1: _open("length", 40, 2)}}
    # The rotation of a layer's Q and K.
    counts = {"layers": 10, "kept": 2, "attentions": 2}
    _program(Llama(), _tokens, [(1, 5), (3, 40), (2, 19)], checking, dynamic, **counts)


def test_a_decoder_of_tvm_s_own_modules(checking: Vgpu) -> None:
    module, weights = relax_llama.decoder()
    artifact = boltgen.compile(module, arch="sm_80", shapes={"x": ("1..4", "1..40", WIDTH)})
    rng = np.random.default_rng(0)
    for batch, length in ((1, 1), (2, 17), (3, 33)):
        angles = np.outer(np.arange(length), 1e4 ** -np.linspace(0, 1, relax_llama.HEAD // 2))
        both = np.concatenate((angles, angles), -1).astype(np.float32)
        x = rng.standard_normal((batch, length, WIDTH)).astype(np.float32)
        ahead = np.triu(np.full((length, length), -1e9, np.float32), 1)
        inputs = {"x": x, "cosine": np.cos(both), "sine": np.sin(both), "mask": ahead}
        expected = relax_llama.reference(weights, x, inputs["cosine"], inputs["sine"])
        # The rotation of both Q and K.
        _judged(artifact, inputs, [expected], checking, layers=8, kept=1, attentions=1)


# As Hugging Face's exporters write what hides padding: of what has 1 for each token that is there.
_SUBTRACTED = """
  seen = Cast <to = 1> (wide)
  hidden = Sub (unit, seen)
  bias = Mul (hidden, lowest)
  masked = Add (scaled, bias)
"""
_CHOSEN = """
  seen = Cast <to = 9> (wide)
  masked = Where (seen, scaled, lowest)
"""
_ENCODER = """
<ir_version: 8, opset_import: ["" : 17]>
encoder (float[batch, seq, 64] x, int64[batch, seq] attention_mask) => (float[batch, seq, 64] y) {{
  zero = Constant <value_int = 0> ()
  one = Constant <value_int = 1> ()
  axes = Constant <value_ints = [0]> ()
  inner = Constant <value_ints = [1, 2]> ()
  heads = Constant <value_ints = [4]> ()
  head = Constant <value_ints = [16]> ()
  width = Constant <value_ints = [64]> ()
  root = Constant <value_float = 4.0> ()
  unit = Constant <value_float = 1.0> ()
  lowest = Constant <value_float = -3.4028234663852886e38> ()
  shape = Shape (x)
  b = Gather (shape, zero)
  s = Gather (shape, one)
  b1 = Unsqueeze (b, axes)
  s1 = Unsqueeze (s, axes)
  split = Concat <axis = 0> (b1, s1, heads, head)
  joined = Concat <axis = 0> (b1, s1, width)
  q0 = MatMul (x, wq)
  q1 = Reshape (q0, split)
  q = Transpose <perm = [0, 2, 1, 3]> (q1)
  k0 = MatMul (x, wk)
  k1 = Reshape (k0, split)
  k = Transpose <perm = [0, 2, 3, 1]> (k1)
  v0 = MatMul (x, wv)
  v1 = Reshape (v0, split)
  v = Transpose <perm = [0, 2, 1, 3]> (v1)
  scores = MatMul (q, k)
  scaled = Div (scores, root)
  wide = Unsqueeze (attention_mask, inner)
  {mask}
  weights = Softmax <axis = -1> (masked)
  context = MatMul (weights, v)
  back = Transpose <perm = [0, 2, 1, 3]> (context)
  rows = Reshape (back, joined)
  dense = MatMul (rows, wo)
  sum = Add (dense, x)
  y = LayerNormalization (sum, gamma, beta)
}}
"""


@pytest.mark.parametrize("mask", [_SUBTRACTED, _CHOSEN], ids=["added", "chosen"])
def test_an_encoder_whose_padding_the_model_hides(
    mask: str, tmp_path: Path, checking: Vgpu
) -> None:
    model = onnx.parser.parse_model(_ENCODER.format(mask=mask))
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)) for name in ("wq", "wk", "wv")}
    weights |= {"wo": rng.normal(0, WIDTH**-0.5, (WIDTH, WIDTH))}
    weights |= {"gamma": rng.normal(1, 0.1, WIDTH), "beta": rng.normal(0, 0.1, WIDTH)}
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    path = tmp_path / "encoder.onnx"
    onnx.save(model, path)
    artifact = boltgen.compile(path, arch="sm_80", shapes={"x": ("1..4", "1..40", WIDTH)})
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for batch, length in ((1, 1), (2, 17), (4, 40), (3, 33)):
        lengths = np.maximum(length - 5 * np.arange(batch), 1)
        inputs = {
            "x": rng.standard_normal((batch, length, WIDTH)).astype(np.float32),
            "attention_mask": (np.arange(length) < lengths[:, None]).astype(np.int64),
        }
        expected = session.run(None, inputs)
        _judged(artifact, inputs, expected, checking, layers=5, kept=1, attentions=1)

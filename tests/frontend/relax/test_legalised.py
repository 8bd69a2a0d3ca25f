"""Modules of which no kernels can be made any more, and what is no module, are named."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

from boltgen.errors import ModelImportError
from boltgen.frontend.relax import require_operators
from boltgen.tvm_build import relax_model

WEIGHT = relax.const(np.ones((16, 16), np.float16))


def module(*, with_product: bool = True) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((16, 16), "float16"))
    with builder.function("main", [x]):
        with builder.dataflow():
            y = builder.emit(relax.op.matmul(x, WEIGHT)) if with_product else x
            result = builder.emit_output(builder.emit(relax.op.nn.relu(y)))
        builder.emit_func_output(result)
    return builder.get()


LEGALISED = tvm.transform.Sequential([relax.transform.LegalizeOps()])
FUSED = tvm.transform.Sequential(
    [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FuseOps(),
    ]
)
MERGED = tvm.transform.Sequential([*FUSED.passes, relax.transform.FuseTIR()])


@pytest.mark.parametrize("passes", [LEGALISED, FUSED, MERGED], ids=["legalised", "fused", "merged"])
def test_a_module_without_operators_is_refused(passes: tvm.transform.Pass) -> None:
    said = r"no operators of Relax.*matmul.*before these passes"
    with pytest.raises(ModelImportError, match=said):
        relax_model.partition(passes(module()), arch="sm_80")


def test_a_module_with_operators_is_taken() -> None:
    require_operators(module())


def test_a_module_without_products_is_returned_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, logger="boltgen"):
        made = relax_model.partition(module(with_product=False), arch="sm_80")
    assert "no matrix product or convolution" in caplog.text
    assert "main" in {gvar.name_hint for gvar in made.get_global_vars()}


@pytest.mark.parametrize("given", ["model.onnx", Path("model.onnx"), None, [module()]])
def test_what_is_no_module_is_named(given: object) -> None:
    said = rf"boltgen\.relax\.partition takes a tvm\.IRModule .* a {type(given).__qualname__}: "
    with pytest.raises(ModelImportError, match=said):
        relax_model.partition(given, arch="sm_80")

"""Run a model in eager PyTorch in FP32, and with the least error that FP16 or BF16 causes.

Nothing of boltgen's is in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks.libraries.samples import Sample
from benchmarks.trials.errors import Array

_PRODUCTS = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten.baddbmm.default,
    torch.ops.aten.convolution.default,
}


class RoundedProducts(TorchDispatchMode):
    """Products have FP32 operands and results of `dtype`'s precision within it, sums in FP32."""

    def __init__(self, dtype: Any = torch.float16) -> None:
        super().__init__()
        self._dtype = dtype

    def __torch_dispatch__(
        self,
        operator: Any,
        types: Any,
        arguments: Sequence[Any] = (),
        keywords: Mapping[str, Any] | None = None,
    ) -> Any:
        """The result of `operator`, rounded where it is a product's."""
        del types
        if operator not in _PRODUCTS:
            return operator(*arguments, **(keywords or {}))
        return self._rounded(operator(*map(self._rounded, arguments), **(keywords or {})))

    def _rounded(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor) and value.dtype == torch.float32:
            return value.to(self._dtype).float()
        return value


def run_eager(sample: Sample) -> list[Array]:
    """The outputs as PyTorch has them."""
    with torch.no_grad():
        return _arrays(sample.module(*sample.inputs))


def run_rounded(sample: Sample, dtype: Any = torch.float16) -> list[Array]:
    """Return the outputs with products rounded to `dtype`, products of attention included."""
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), RoundedProducts(dtype):
        return _arrays(sample.module(*sample.inputs))


def _arrays(outputs: Any) -> list[Array]:
    tensors = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return [tensor.detach().numpy() for tensor in tensors]

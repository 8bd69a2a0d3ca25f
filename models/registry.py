"""The models that can be built by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from onnx import ModelProto

from models.bert import bert_base
from models.repvgg import (
    repvgg_a0,
    repvgg_a1,
    repvgg_b0,
    repvggaug_a0,
    repvggaug_a1,
    repvggaug_b0,
)
from models.resnet import resnet18, resnet50
from models.vgg import vgg16


@dataclass(frozen=True, slots=True)
class Entry:
    """A builder, what it builds, and how many parameters that has.

    The count is the one that the authors publish, rounded as they do; RepVGGAug's is its
    description's (see `models.repvgg`).
    """

    builder: Callable[..., ModelProto]
    summary: str
    parameters_millions: float

    def options(self) -> Mapping[str, object]:
        """Names of the builder's keyword options, with their default values."""
        parameters = inspect.signature(self.builder).parameters
        return {name: parameter.default for name, parameter in parameters.items()}


MODELS: Mapping[str, Entry] = {
    "resnet18": Entry(resnet18, "residual network, basic blocks, batch norm", 11.69),
    "resnet50": Entry(resnet50, "residual network, bottleneck blocks, batch norm", 25.56),
    "vgg16": Entry(vgg16, "thirteen 3x3 convolutions, three dense layers", 138.36),
    "repvgg_a0": Entry(repvgg_a0, "RepVGG A0 in deploy form: 3x3 convolutions and ReLU", 8.31),
    "repvgg_a1": Entry(repvgg_a1, "RepVGG A1 in deploy form: wider", 12.79),
    "repvgg_b0": Entry(repvgg_b0, "RepVGG B0 in deploy form: wider and deeper", 14.34),
    "repvggaug_a0": Entry(repvggaug_a0, "RepVGG A0 with 1x1 convolutions between", 8.87),
    "repvggaug_a1": Entry(repvggaug_a1, "RepVGG A1 with 1x1 convolutions between", 13.79),
    "repvggaug_b0": Entry(repvggaug_b0, "RepVGG B0 with 1x1 convolutions between", 15.51),
    "bert_base": Entry(bert_base, "encoder of BERT-base, without embeddings", 85.05),
}


def build(name: str, **options: object) -> ModelProto:
    """Build the model `name` with random weights, e.g. `build("resnet18", batch=1, image_size=64)`.

    Raises:
        ValueError: no such model, no such option, or a shape that the model cannot have.
    """
    if name not in MODELS:
        raise ValueError(f"no model is named {name!r}; there are {', '.join(MODELS)}")
    entry = MODELS[name]
    known = entry.options()
    unknown = [option for option in options if option not in known]
    if unknown:
        raise ValueError(
            f"{name} has no option {', '.join(unknown)}; its options are {', '.join(known)}"
        )
    return entry.builder(**options)

"""The operators that have each kind of attributes.

An operator that is not in `KINDS` has no attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from types import NoneType
from typing import Any, TypeAlias

from boltgen.errors import GraphError
from boltgen.graph.attributes import (
    AdaptivePool,
    Attributes,
    Axis,
    BatchNorm,
    Cast,
    Clip,
    Convolution,
    Count,
    Diagonal,
    DynamicSlice,
    Einsum,
    Groups,
    ImageNorm,
    Indexed,
    Input,
    LayerNorm,
    MeanPool,
    Normalised,
    Normed,
    Opaque,
    Pad,
    Permutation,
    Pool,
    RecurrentSteps,
    Reduce,
    RegionCall,
    Repeat,
    Resize,
    RunningSum,
    ScaledGroupNorm,
    Scatter,
    Sharpness,
    Slice,
    Slope,
    SteppedSlice,
    Take,
    TransposedConvolution,
    Unpack,
)

_Kinds: TypeAlias = "tuple[type[Attributes], ...]"
# The records that an operator may have, by its name. The attributes of a slice or a range are
# unknown if its author's call computes them.
KINDS: Mapping[str, _Kinds] = {
    "input": (Attributes, Input),
    "opaque": (Opaque,),
    "region": (RegionCall,),
    **dict.fromkeys(("part", "boltgen.half"), (Indexed,)),
    "nn.leakyrelu": (Slope,),
    "nn.softplus": (Sharpness,),
    "clip": (Clip,),
    "astype": (Cast,),
    **dict.fromkeys(
        (
            *("nn.softmax", "nn.log_softmax", "concat", "stack", "split", "flip"),
            *("nn.prelu", "nn.bias_add", "gather_elements", "quantize", "dequantize"),
        ),
        (Axis,),
    ),
    "take": (Take,),
    "cumsum": (RunningSum,),
    "repeat": (Repeat,),
    "strided_slice": (Slice, SteppedSlice, DynamicSlice, Attributes),
    "slice_scatter": (Scatter, Attributes),
    "permute_dims": (Permutation,),
    "nn.pad": (Pad,),
    **dict.fromkeys(("triu", "tril"), (Diagonal,)),
    "arange": (Count, Attributes),
    "image.resize2d": (Resize,),
    **dict.fromkeys(
        ("mean", "image_mean", "sum", "max", "min", "prod", "variance", "std"), (Reduce,)
    ),
    "nn.rms_norm": (Normalised,),
    "nn.layer_norm": (LayerNorm,),
    "nn.group_norm": (ScaledGroupNorm,),
    "nn.batch_norm": (BatchNorm,),
    "group_norm": (ImageNorm,),
    "boltgen.normed": (Normed,),
    **dict.fromkeys(("nn.conv1d", "nn.conv2d"), (Convolution,)),
    **dict.fromkeys(("nn.conv1d_transpose", "nn.conv2d_transpose"), (TransposedConvolution,)),
    "nn.conv3d": (Groups,),
    "nn.max_pool2d": (Pool,),
    "nn.avg_pool2d": (MeanPool,),
    "nn.adaptive_avg_pool2d": (AdaptivePool,),
    "boltgen.unpack": (Unpack,),
    "recurrent": (RecurrentSteps,),
    "einsum": (Einsum,),
}


def attributes_of(operator: str, given: Mapping[str, Any]) -> Attributes:
    """Return the record of an operator's attributes, which are given by their names.

    Raises:
        GraphError: the operator has other attributes.
    """
    kinds = KINDS.get(operator, (Attributes,))
    for kind in kinds:
        with suppress(TypeError):
            return kind(**given)
    wanted = ", or ".join(", ".join(each.name for each in fields(kind)) or "none" for kind in kinds)
    raise GraphError(
        f"{operator} has the attributes {wanted}, not {', '.join(sorted(given)) or 'none'}; "
        "report this model to boltgen's authors"
    )


# The classes of values by the annotations of fields.
_CLASSES: Mapping[str, Any] = {
    **{"int": int, "float": (int, float), "bool": bool, "str": str},
    **{"tuple": tuple, "None": NoneType},
}


def mistyped(attributes: Attributes) -> str | None:
    """Return why a field's value is not of the field's type; None if all are."""
    for each in fields(attributes):
        parts = [part.partition("[")[0] for part in str(each.type).split(" | ")]
        known = tuple(_CLASSES.get(part, object) for part in parts)
        if not isinstance(getattr(attributes, each.name), known):
            return f"attribute {each.name} is of type {each.type}"
    return None

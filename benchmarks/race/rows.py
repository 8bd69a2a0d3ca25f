"""The rows of the race: problems by architecture.

A row takes the virtual GPU less than a minute on one core, so images and heads are fewer than in a
model. Sources: Bolt (Xing et al., MLSys 2022), figure 8: BERT at batch 32, sequence 40, and
ResNet-50's convolutions; extents like Llama's: Touvron et al., 2023, table 2.
"""

from __future__ import annotations

from benchmarks.race.problems import (
    Attention,
    Convolution,
    DepthwiseConvolution,
    Matmul,
    Problem,
    RowNorm,
)
from boltgen.problems.norm.problem import NormFunction

_BERT = (Matmul(1280, 768, 768), Matmul(1280, 3072, 768), Matmul(1280, 768, 3072))
_LLAMA = tuple(Matmul(rows, 4096, 4096) for rows in (1, 16, 64, 512))
_ATTENTION = tuple(
    Attention(heads, tokens, depth, causal)
    for heads, tokens, depth in ((12, 512, 64), (8, 1024, 64), (2, 2048, 64), (4, 1024, 128))
    for causal in (False, True)
)
_NORMS = tuple(
    RowNorm(function, rows, columns)
    for function in NormFunction
    for rows, columns in ((1280, 768), (512, 4096))
)
# Height, channels in and out, filter, stride.
_RESNET50 = (
    (56, 64, 64, 3, 1),
    (56, 128, 128, 3, 2),
    (28, 128, 128, 3, 1),
    (28, 256, 256, 3, 2),
    (14, 256, 256, 3, 1),
    (7, 512, 512, 3, 1),
)
_CONVOLUTIONS = tuple(Convolution(8, *each) for each in _RESNET50)
# MobileNetV2's third and fourth block, and ConvNeXt-T's first: height, channels, filter, stride.
_DEPTHWISE = tuple(
    DepthwiseConvolution(4, *each) for each in ((56, 144, 3, 1), (56, 144, 3, 2), (56, 96, 7, 1))
)

_SM80: tuple[Problem, ...] = (
    *_BERT,
    *_LLAMA,
    Matmul(1024, 1024, 1024),
    *_ATTENTION,
    *_NORMS,
    *_CONVOLUTIONS,
    *_DEPTHWISE,
)
# Few: a kernel of wgmma takes nvcc half a minute of a core.
_SM90A: tuple[Problem, ...] = tuple(Attention(4, 1024, 64, causal) for causal in (False, True))

ROWS = (*(("sm_80", each) for each in _SM80), *(("sm_90a", each) for each in _SM90A))

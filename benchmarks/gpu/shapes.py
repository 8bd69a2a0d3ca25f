"""Every problem that the suite measures, by section: the one list of them.

Sources: Bolt (Xing et al., MLSys 2022): figure 8 (BERT at batch 32, sequence 40; ResNet-50's 3x3
convolutions), figure 9, tables 1 to 3. ResNet-50: He et al., CVPR 2016, table 1. Extents like
Llama's: Touvron et al., 2023, table 2 (4096, 11008) and Llama 3, 2024, table 3 (14336).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from boltgen.ir.dtypes import DType, Layout
from boltgen.ir.elementwise import (
    SOFTMAX,
    BinaryOp,
    ElementwiseGraph,
    LoadKind,
    local_softmax,
)
from boltgen.ir.elementwise_builder import ElementwiseBuilder
from boltgen.ir.functions import UnaryOp
from boltgen.ir.recurrence import Cell
from boltgen.problems.conv2d.problem import Conv2d
from boltgen.problems.depthwise.problem import Depthwise
from boltgen.problems.gemm.problem import Gemm
from boltgen.problems.recurrent.problem import Recurrent
from boltgen.problems.workload import Layer, Workload

# GEMMs that are raced first: 20 of `gemms`.
_FIRST_SQUARES = (512, 1024, 2048, 4096, 8192)
_FIRST_LLAMA_ROWS, _FIRST_LLAMA = (1, 16, 512, 4096), ((4096, 4096), (14336, 4096), (4096, 14336))
# Attention: tokens of a sequence, width of a head; 16384 tokens of 2048 columns in all, as
# FlashAttention's authors measure it (Dao, 2023, figure 4).
_TOKENS, _WIDTHS, _ALL_TOKENS, _COLUMNS = (512, 1024, 2048, 4096), (64, 128), 16384, 2048
# BERT-base at batch 32: heads, tokens of a sequence, width of a head.
_BERT_HEADS, _BERT_TOKENS, _BERT_WIDTH = 32 * 12, 40, 64
SQUARES = (512, 1024, 2048, 4096, 8192, 16384)
_BERT_ROWS, _BERT = 32 * 40, ((768, 768), (3072, 768), (768, 3072))
_LLAMA_ROWS = (1, 16, 64, 512, 4096)
_LLAMA = ((4096, 4096), (11008, 4096), (4096, 11008), (14336, 4096), (4096, 14336))
_PRIME = 2039

BATCH = 32
# Height, input and output channels, filter, stride; with the padding that keeps the extent. The
# first layer's image has a fourth channel, of zeros, as boltgen pads it.
_RESNET50 = (
    (224, 4, 64, 7, 2),
    (56, 64, 64, 1, 1),
    (56, 64, 64, 3, 1),
    (56, 64, 256, 1, 1),
    (56, 256, 64, 1, 1),
    (56, 256, 128, 1, 1),
    (56, 128, 128, 3, 2),
    (56, 256, 512, 1, 2),
    (28, 128, 512, 1, 1),
    (28, 512, 128, 1, 1),
    (28, 128, 128, 3, 1),
    (28, 512, 256, 1, 1),
    (28, 256, 256, 3, 2),
    (28, 512, 1024, 1, 2),
    (14, 256, 1024, 1, 1),
    (14, 1024, 256, 1, 1),
    (14, 256, 256, 3, 1),
    (14, 1024, 512, 1, 1),
    (14, 512, 512, 3, 2),
    (14, 1024, 2048, 1, 2),
    (7, 512, 2048, 1, 1),
    (7, 2048, 512, 1, 1),
    (7, 512, 512, 3, 1),
)
# Bolt's table 3: images, height, width, channels in and out, filter, padding.
_PADDING = (
    (32, 20, 26, 46, 32, (3, 3), 1),
    (32, 20, 26, 46, 32, (5, 5), 2),
    (128, 14, 19, 46, 32, (5, 7), 0),
    (288, 11, 15, 46, 32, (5, 7), 0),
    (32, 20, 26, 174, 64, (3, 3), 1),
    (32, 20, 26, 174, 64, (5, 5), 2),
)
# Depthwise layers: height, channels, filter, stride. Sources: MobileNetV2 (Sandler et al., CVPR
# 2018, table 2), EfficientNet-B0 (Tan and Le, ICML 2019, table 1), ConvNeXt-T (Liu et al., CVPR
# 2022, table 9).
_DEPTHWISE = (
    (112, 32, 3, 1),
    (112, 96, 3, 2),
    (28, 192, 3, 1),
    (14, 576, 3, 1),
    (28, 240, 5, 1),
    (14, 672, 5, 2),
    (56, 96, 7, 1),
    (14, 384, 7, 1),
)
# Layers in groups: height, channels, groups, stride. Sources: ResNeXt-50 (Xie et al., CVPR 2017,
# table 1), RegNetY-3.2GF (Radosavovic et al., CVPR 2020, table 9: groups of 24).
_GROUPS = (
    (56, 128, 32, 1),
    (28, 256, 32, 1),
    (14, 512, 32, 1),
    (7, 1024, 32, 1),
    (28, 216, 9, 1),
)
# Recurrent layers: cell, steps, sequences, hidden units, directions.
_RECURRENT = (
    (Cell.LSTM, 128, 1, 128, 1),
    (Cell.LSTM, 128, 32, 128, 2),
    (Cell.LSTM, 64, 8, 256, 2),
    (Cell.LSTM, 35, 20, 512, 1),
    (Cell.LSTM, 64, 8, 1024, 1),
    (Cell.GRU, 128, 8, 128, 2),
    (Cell.GRU, 400, 1, 64, 1),
    (Cell.RNN_TANH, 128, 32, 128, 1),
)
ACTIVATIONS = {
    "relu": UnaryOp.RELU,
    "gelu": UnaryOp.GELU_ERF,
    "hardswish": UnaryOp.HARDSWISH,
    "softplus": UnaryOp.SOFTPLUS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A model of `models.MODELS` with its builder's options, and what it takes, in FP16."""

    model: str
    options: tuple[tuple[str, int], ...]
    input_shape: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionShape:
    """Attention of `heads` sequences of heads, one after another in memory."""

    heads: int
    rows: int
    keys: int
    depth: int
    is_causal: bool = False

    @property
    def workload(self) -> Workload:
        """softmax(Q K / sqrt(depth)) V."""
        scores = Gemm(
            m=self.rows,
            n=self.keys,
            k=self.depth,
            batch=self.heads,
            b_layout=Layout.COLUMN,
            out_dtype=DType.F32,
        )
        output = Gemm(m=self.rows, n=self.depth, k=self.keys, batch=self.heads, b_layout=Layout.ROW)
        builder = ElementwiseBuilder()
        builder.binary(BinaryOp.MULTIPLY, 0, builder.scalar(self.depth**-0.5))
        softmax = local_softmax(0) if self.is_causal else SOFTMAX
        return Workload(
            layers=(
                Layer(problem=scores, epilogue=builder.build()),
                Layer(problem=output, epilogue=ElementwiseGraph(), prologue=softmax),
            )
        )


def attentions() -> dict[str, AttentionShape]:
    """List section attention by name: tokens, width of a head, mask."""
    bert = AttentionShape(
        heads=_BERT_HEADS, rows=_BERT_TOKENS, keys=_BERT_TOKENS, depth=_BERT_WIDTH
    )
    return {f"{_BERT_TOKENS}x{_BERT_WIDTH}-full": bert} | {
        f"{tokens}x{width}-{'causal' if is_causal else 'full'}": AttentionShape(
            heads=_ALL_TOKENS // tokens * (_COLUMNS // width),
            rows=tokens,
            keys=tokens,
            depth=width,
            is_causal=is_causal,
        )
        for tokens in _TOKENS
        for width in _WIDTHS
        for is_causal in (False, True)
    }


def image_model(model: str, batch: int, image_size: int = 224) -> ModelShape:
    """A model of images, (batch, 3, image_size, image_size)."""
    options = (("batch", batch), ("image_size", image_size))
    return ModelShape(model=model, options=options, input_shape=(batch, 3, image_size, image_size))


def sequence_model(model: str, batch: int, seq_len: int = 40, layers: int = 12) -> ModelShape:
    """A model of hidden states, (batch, seq_len, 768)."""
    options = (("batch", batch), ("seq_len", seq_len), ("layers", layers))
    return ModelShape(model=model, options=options, input_shape=(batch, seq_len, 768))


def models() -> dict[str, ModelShape]:
    """List section models by name; BERT's sequences are as long as figure 8's."""
    images = ("resnet50", "vgg16", "repvgg_a0", "repvggaug_a0")
    found = {f"{name}-b{b}": image_model(name, b) for b in (1, BATCH) for name in images}
    return found | {f"bert_base-b{b}": sequence_model("bert_base", b) for b in (1, BATCH)}


def first_models() -> dict[str, ModelShape]:
    """List the items of section models that are measured first."""
    return {name: models()[name] for name in (f"resnet50-b{BATCH}", f"bert_base-b{BATCH}")}


def small_models() -> dict[str, ModelShape]:
    """List section models of a quick bundle, in sizes for the virtual GPU."""
    return {"repvgg_a0-small": image_model("repvgg_a0", 1, 32)}


def gemm(m: int, n: int, k: int) -> Gemm:
    """A product with a weight as frameworks store it: (N, K)."""
    return Gemm(m=m, n=n, k=k, b_layout=Layout.COLUMN)


def swept(names: Iterable[str]) -> dict[str, Gemm]:
    """Read section gemm's names, `MxNxK`, or `MxNxK-row` with a weight of (K, N).

    Raises:
        ValueError: a name has another form.
    """
    found = {}
    for name in names:
        sizes, is_row, rest = name.partition("-row")
        extents = [int(size) for size in sizes.split("x") if size.isdecimal()]
        if len(extents) != 3 or sizes != "x".join(map(str, extents)) or rest or 0 in extents:
            raise ValueError(f"{name!r} names no GEMM: give MxNxK or MxNxK-row")
        layout = Layout.ROW if is_row else Layout.COLUMN
        found[name] = replace(gemm(*extents), b_layout=layout)
    return found


def bert() -> dict[str, Gemm]:
    """The products of BERT's layers, by name `MxNxK`."""
    return _named((_BERT_ROWS, n, k) for n, k in _BERT)


def gemms() -> dict[str, Gemm]:
    """Section gemm, by name `MxNxK`."""
    llama = [(m, n, k) for m in _LLAMA_ROWS for n, k in _LLAMA]
    return {
        **_named((s, s, s) for s in SQUARES),
        **bert(),
        **_named([*llama, (_PRIME, _PRIME, _PRIME)]),
    }


def first_gemms() -> dict[str, Gemm]:
    """List the items of section gemm that are raced first: squares, BERT's, few rows and many."""
    llama = [(m, n, k) for m in _FIRST_LLAMA_ROWS for n, k in _FIRST_LLAMA]
    squares = [(size, size, size) for size in (*_FIRST_SQUARES, _PRIME)]
    return {**_named(squares), **bert(), **_named(llama)}


def _named(sizes: Iterable[tuple[int, int, int]]) -> dict[str, Gemm]:
    return {f"{m}x{n}x{k}": gemm(m, n, k) for m, n, k in sizes}


def convolutions() -> dict[str, Conv2d]:
    """Section conv: ResNet-50's layers, by name; the first one also with pairs of pixels as one."""
    paired = Conv2d(n=BATCH, h=224, w=112, c=8, k=64, r=7, s=4, stride=(2, 1), padding=(3, 2, 3, 1))
    return {"224x112-8-64-7x4-paired": paired} | {
        f"{h}x{h}-{c}-{k}-{f}x{f}-s{stride}": Conv2d(
            n=BATCH,
            h=h,
            w=h,
            c=c,
            k=k,
            r=f,
            s=f,
            stride=(stride, stride),
            padding=(f // 2,) * 4,
        )
        for h, c, k, f, stride in _RESNET50
    }


def depthwise() -> dict[str, Depthwise]:
    """Section depthwise, by name: height, channels, filter, stride."""
    return {
        f"{h}x{h}-{c}-{f}x{f}-s{stride}": Depthwise(
            n=BATCH,
            h=h,
            w=h,
            c=c,
            r=f,
            s=f,
            stride=(stride, stride),
            padding=(f // 2,) * 4,
        )
        for h, c, f, stride in _DEPTHWISE
    }


def in_groups() -> dict[str, Conv2d]:
    """Section groups, by name: height, channels, groups, stride; all filters are 3x3."""
    return {
        f"{h}x{h}-{c}-groups{groups}-s{stride}": Conv2d(
            n=BATCH,
            h=h,
            w=h,
            c=c,
            k=c,
            r=3,
            s=3,
            groups=groups,
            stride=(stride, stride),
            padding=(1, 1, 1, 1),
        )
        for h, c, groups, stride in _GROUPS
    }


def recurrent() -> dict[str, Recurrent]:
    """Section recurrent, by name: cell, steps, sequences, hidden units, directions."""
    return {
        f"{cell.value}-{steps}x{rows}x{hidden}-{directions}": Recurrent(
            cell=cell,
            steps=steps,
            batch_rows=rows,
            hidden=hidden,
            directions=directions,
            has_bias=cell is Cell.GRU,
        )
        for cell, steps, rows, hidden, directions in _RECURRENT
    }


def bias_then(activation: UnaryOp) -> ElementwiseGraph:
    """activation(accumulator + bias)."""
    builder = ElementwiseBuilder()
    builder.unary(activation, builder.binary(BinaryOp.ADD, 0, builder.load(LoadKind.ROW)))
    return builder.build()


def relu() -> ElementwiseGraph:
    """relu(accumulator)."""
    builder = ElementwiseBuilder()
    builder.unary(UnaryOp.RELU, 0)
    return builder.build()


def fused() -> dict[str, Gemm | Conv2d]:
    """The products of figure 9."""
    conv = Conv2d(n=BATCH, h=56, w=56, c=64, k=64, r=3, s=3, padding=(1, 1, 1, 1))
    return {"gemm-1280x3072x768": gemm(1280, 3072, 768), "conv-56x56-64-64-3x3": conv}


def unaligned() -> dict[str, Conv2d]:
    """Table 3's convolutions, by name."""
    return {
        f"{n}x{h}x{w}-{c}-{k}-{r}x{s}": Conv2d(n=n, h=h, w=w, c=c, k=k, r=r, s=s, padding=(p,) * 4)
        for n, h, w, c, k, (r, s), p in _PADDING
    }


def aligned(problem: Conv2d, multiple: int = 8) -> Conv2d:
    """The same convolution with its input channels rounded up."""
    return replace(problem, c=-(-problem.c // multiple) * multiple)

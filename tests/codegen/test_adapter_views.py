"""Adapters of attention whose heads lie in the rows of TVM's tensors."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from benchmarks.cases.attention import attention, scaled
from boltgen.codegen.adapter import Choice, RegionLaunch, render_adapter
from boltgen.codegen.adapter_memory import CallMemory
from boltgen.errors import InvalidProblemError
from boltgen.families.attention.config import AttentionConfig
from boltgen.families.registry import launch
from boltgen.ir.elementwise import LoadKind
from boltgen.ir.extent import Symbol, symbolic
from boltgen.problems.cells import localised
from boltgen.problems.region import HeadView, LayerRoles, Operand, Region, Shared, Sharing
from boltgen.problems.workload import Workload

HEADS, HEAD = 3, 16
CONFIG = AttentionConfig(rows=64, keys=32, depth=16, columns=16, warps=4, stages=2)


def _view(offset: int = 0, heads: int = HEADS) -> HeadView:
    return HeadView(heads=heads, inner=(3, heads * HEAD), offset=offset, stride=HEAD)


def _region(workload: Workload, k: HeadView | None, d: HeadView | None) -> Region:
    return Region(
        symbol="region_0",
        label="attention",
        workload=localised(workload)[0],
        parameter_count=3,
        a=0,
        layers=(LayerRoles(b=1, b_view=k), LayerRoles(b=2)),
        d_view=d,
    )


def _fields(region: Region) -> tuple[str, dict[str, str]]:
    """The text, and what each field of the arguments is set to in it."""
    args = launch(region.workload, CONFIG)
    choices = (Choice(cell=region.workload, kernel="kernel", launch=args),)
    text = render_adapter([RegionLaunch(region=region, choices=choices, memory=CallMemory())])
    return text, dict(re.findall(r"args\.(\S+) =\s+(.*);", text))


def test_dense_operands_have_strides_of_heads_where_another_is_a_view() -> None:
    workload = attention(40, 56, HEAD, HEAD, batch=2 * HEADS)
    _, fields = _fields(_region(workload, _view(offset=48), None))
    row = 3 * HEADS * HEAD
    strides = {name: value for name, value in fields.items() if "_stride" in name or "ld" in name}
    assert strides == {
        "lda": f"{HEAD}",
        "head_stride_a": f"{40 * HEAD}",
        "batch_stride_a": f"{HEADS * 40 * HEAD}",
        "layers[0].ldb": f"{row}",
        "layers[0].head_stride_b": f"{HEAD}",
        "layers[0].batch_stride_b": f"{56 * row}",
        "layers[1].ldb": f"{HEAD}",
        "layers[1].head_stride_b": f"{56 * HEAD}",
        "layers[1].batch_stride_b": f"{HEADS * 56 * HEAD}",
        "ldd": f"{HEAD}",
        "head_stride_d": f"{40 * HEAD}",
        "batch_stride_d": f"{HEADS * 40 * HEAD}",
    }
    assert fields["heads"] == f"{HEADS}"
    # Elements become bytes; the tensor's own shape is what is checked.
    shape = f"{{2, 56, 3, {HEADS * HEAD}}}"
    assert shape in fields["layers[0].b"]
    assert fields["layers[0].b"].endswith(", 96)")


def test_rows_of_all_sequences_may_lie_side_by_side() -> None:
    workload = attention(40, 56, HEAD, HEAD, batch=2 * HEADS)
    _, fields = _fields(_region(workload, replace(_view(offset=48), rows_first=True), None))
    row = 3 * HEADS * HEAD
    assert fields["layers[0].ldb"] == f"{2 * row}"
    assert fields["layers[0].batch_stride_b"] == f"{row}"
    assert fields["layers[0].head_stride_b"] == f"{HEAD}"
    assert f"{{56, 2, 3, {HEADS * HEAD}}}" in fields["layers[0].b"]


@pytest.mark.parametrize(
    ("operand", "shape", "strides"),
    [
        (Operand(parameter=3), "{56}", ("0", "0")),
        (Operand(parameter=3, batched=True), "{6, 56}", (f"{HEADS * 56}", "56")),
        (
            Operand(parameter=3, shared=Shared(by=Sharing.HEADS, heads=HEADS)),
            "{2, 56}",
            ("56", "0"),
        ),
        (
            Operand(parameter=3, shared=Shared(by=Sharing.SEQUENCES, heads=HEADS)),
            "{3, 56}",
            ("0", "56"),
        ),
    ],
)
def test_masks_have_strides_of_sequences_and_of_heads(
    operand: Operand, shape: str, strides: tuple[str, str]
) -> None:
    scores = scaled(HEAD, LoadKind.ROW)
    workload = attention(40, 56, HEAD, HEAD, batch=2 * HEADS, scores=scores)
    region = replace(
        _region(attention(40, 56, HEAD, HEAD, batch=2 * HEADS), None, _view()),
        workload=workload,
        parameter_count=4,
        layers=(LayerRoles(b=1, operands=(operand,)), LayerRoles(b=2)),
    )
    _, fields = _fields(region)
    assert shape in fields["layers[0].operands[0].pointer"]
    assert strides == (
        fields["layers[0].operands[0].batch_stride"],
        fields["layers[0].operand_head_strides[0]"],
    )


@pytest.mark.parametrize(
    ("kind", "shape", "ld", "stride"),
    [(LoadKind.TENSOR, "{3, 64, 80}", "80", f"{64 * 80}"), (LoadKind.ROW, "{3, 80}", "0", "80")],
)
def test_a_mask_within_a_larger_tensor_has_its_strides(
    kind: LoadKind, shape: str, ld: str, stride: str
) -> None:
    rows, keys = symbolic(Symbol("s", 1, 64)), symbolic(Symbol("k", 1, 80))
    shared = Shared(by=Sharing.SEQUENCES, heads=HEADS)
    workload = attention(rows, keys, HEAD, HEAD, batch=2 * HEADS, scores=scaled(HEAD, kind))
    region = Region(
        symbol="region_0",
        label="attention",
        workload=localised(workload)[0],
        parameter_count=4,
        a=0,
        layers=(
            LayerRoles(b=1, operands=(Operand(parameter=3, shared=shared, within=(64, 80)),)),
            LayerRoles(b=2),
        ),
    )
    _, fields = _fields(region)
    operand = "layers[0].operands[0]"
    assert shape in fields[f"{operand}.pointer"]
    assert fields[f"{operand}.ld"] == ld
    assert fields[f"{operand}.batch_stride"] == "0"
    assert fields["layers[0].operand_head_strides[0]"] == stride


def test_masks_of_other_heads_than_views_are_refused() -> None:
    region = _region(attention(40, 56, HEAD, HEAD, batch=2 * HEADS), None, _view())
    shared = Operand(parameter=2, shared=Shared(by=Sharing.HEADS, heads=2))
    scores = scaled(HEAD, LoadKind.ROW)
    with pytest.raises(InvalidProblemError, match="3, 2 heads"):
        replace(
            region,
            workload=attention(40, 56, HEAD, HEAD, batch=2 * HEADS, scores=scores),
            layers=(LayerRoles(b=1, operands=(shared,)), LayerRoles(b=2)),
        )


def test_symbols_are_read_off_the_tensor_of_a_view() -> None:
    batch, rows = symbolic(Symbol("b", 1, 4)) * HEADS, symbolic(Symbol("s", 1, 50))
    workload = attention(rows, 56, HEAD, HEAD, batch=batch, shared="v")
    region = Region(
        symbol="region_0",
        label="attention",
        workload=localised(workload)[0],
        parameter_count=3,
        a=0,
        layers=(LayerRoles(b=1), LayerRoles(b=2)),
        a_view=_view(),
    )
    text, fields = _fields(region)
    assert f'batch = {HEADS} * call.rows("batch", p0, 0, "A", 3, 1, 4);' in text
    assert 'm = call.extent("m", p0, 0, "A", 2, 1, 50);' in text
    assert f"{{batch / {HEADS}, m, 3, {HEADS * HEAD}}}" in fields["a"]
    assert fields["batch_stride_a"] == f"{3 * HEADS * HEAD}*m"
    # All heads share V.
    assert (fields["layers[1].head_stride_b"], fields["layers[1].batch_stride_b"]) == ("0", "0")


@pytest.mark.parametrize(
    ("heads", "batch", "words"),
    [((3, 6), 6, r"region_0.* 3, 6 heads .*batch of 6"), ((3, 3), 7, r"region_0.* 3, 3 heads .*7")],
)
def test_a_batch_is_sequences_of_one_number_of_heads(
    heads: tuple[int, int], batch: int, words: str
) -> None:
    workload = attention(40, 56, HEAD, HEAD, batch=batch)
    with pytest.raises(InvalidProblemError, match=words):
        _region(workload, *(_view(heads=each) for each in heads))

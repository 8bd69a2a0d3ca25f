"""Compose operators that TVM 0.27's importer lacks from operators that it has.

They extend torch.export's decompositions. One that returns NotImplemented leaves its operator as it
is, which TVM refuses by name then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def compositions() -> Mapping[Any, Callable[..., Any]]:
    """Return the composition of each operator."""
    import torch  # noqa: PLC0415
    from torch._decomp import get_decompositions  # noqa: PLC0415

    aten = torch.ops.aten
    own = {
        aten._cdist_forward.default: _distances,
        aten._embedding_bag_forward_only.default: _bag,
        aten._embedding_bag.default: _bag,
        aten.convolution.default: _transposed,
        aten.exp2.default: lambda x: 2.0**x,
        aten.hypot.default: _hypotenuse,
        aten.index_put.default: _put,
        aten.masked_scatter.default: _scatter_where,
        aten.pad.default: _padded,
        aten.remainder.Scalar_Tensor: _remainder_of_number,
        aten.repeat_interleave.Tensor: _repeats,
        aten.scatter.reduce: _scatter_by_name,
        aten.searchsorted.Tensor: _searched,
        aten.slice_scatter.default: _put_slice,
        aten.sort.stable: _sorted,
        aten.sort.default: _sorted_narrow,
        aten.topk.default: _top,
        aten.unfold.default: _windows,
    }
    return {**get_decompositions([aten.tril_indices, aten.triu_indices]), **own}


def _hypotenuse(x: Any, y: Any) -> Any:
    """sqrt(x x + y y) by the greater of the two, so that no square over- or underflows."""
    import torch  # noqa: PLC0415

    greatest = torch.maximum(x.abs(), y.abs())
    scale = torch.where((greatest > 0) & (greatest < torch.inf), greatest, 1.0)
    return scale * ((x / scale) ** 2 + (y / scale) ** 2).sqrt()


def _distances(x: Any, y: Any, p: float, mode: int | None) -> Any:
    import torch  # noqa: PLC0415

    return torch.linalg.vector_norm(x.unsqueeze(-2) - y.unsqueeze(-3), p, -1)


def _bag(  # noqa: PLR0917  (PyTorch's signature)
    weight: Any,
    indices: Any,
    offsets: Any,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Any = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> Any:
    """Sums (mode 0) and means (mode 1) of the rows of `weight` between offsets."""
    import torch  # noqa: PLC0415

    if mode > 1 or padding_idx >= 0:
        return NotImplemented
    bags = offsets.shape[0] - include_last_offset
    place = torch.arange(indices.shape[0], device=indices.device)
    bag = torch.searchsorted(offsets[:bags].contiguous(), place, right=True) - 1
    rows = torch.nn.functional.embedding(indices, weight)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    at = bag.unsqueeze(-1).expand(rows.shape)
    total = rows.new_zeros(bags, rows.shape[-1]).scatter_add(0, at, rows)
    last = offsets.new_full((1 - include_last_offset,), indices.shape[0])
    count = torch.cat([offsets[1:], last]) - offsets[:bags]
    result = total if mode == 0 else total / count.clamp(min=1).unsqueeze(-1)
    return result, bag, count, torch.zeros_like(offsets)


def _transposed(  # noqa: PLR0917  (PyTorch's signature)
    x: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """A transposed convolution whose output padding is not below its stride, which TVM refuses.

    It is a convolution without padding, of which the padding is cut off, and to which the output
    padding that remains is added as zeros before the bias.
    """
    import torch  # noqa: PLC0415

    wide = [extra >= step for extra, step in zip(output_padding, stride, strict=True)]
    if not transposed or not any(wide):
        return NotImplemented
    aten, none = torch.ops.aten, [0] * len(stride)
    made = aten.convolution.default(x, weight, None, stride, none, dilation, True, none, groups)
    for axis, (cut, extra) in enumerate(zip(padding, output_padding, strict=True), 2):
        end = made.shape[axis] - max(cut - extra, 0)
        made = made.narrow(axis, cut, end - cut)
    grown = [(0, max(extra - cut, 0)) for cut, extra in zip(padding, output_padding, strict=True)]
    widths = [width for pair in reversed(grown) for width in pair]
    made = torch.nn.functional.pad(made, widths)
    return made if bias is None else made + bias.reshape(-1, *(1 for _ in stride))


def _padded(x: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """A padding by its mode, a circular one as a concatenation along each axis: PyTorch's own
    decomposition writes one slice after the other.
    """
    import torch  # noqa: PLC0415

    aten, axes = torch.ops.aten, len(pad) // 2
    match mode:
        case "constant":
            return aten.constant_pad_nd.default(x, pad, 0.0 if value is None else value)
        case "reflect" | "replicate":
            word = {"reflect": "reflection", "replicate": "replication"}[mode]
            return getattr(aten, f"{word}_pad{axes}d").default(x, pad)
        case "circular":
            return _wrapped(x, pad)
        case _:
            return NotImplemented


def _wrapped(x: Any, pad: Sequence[int]) -> Any:
    import torch  # noqa: PLC0415

    for place, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True), 1):
        axis, extent = x.ndim - place, x.shape[x.ndim - place]
        first, last = max(-before, 0), extent + min(after, 0)
        x = x.narrow(axis, first, last - first) if before < 0 or after < 0 else x
        parts = [
            x.narrow(axis, last - first - max(before, 0), max(before, 0)),
            x,
            x.narrow(axis, 0, max(after, 0)),
        ]
        kept = [
            part for part in parts if isinstance(part.shape[axis], torch.SymInt) or part.shape[axis]
        ]
        x = torch.cat(kept, axis)
    return x


def _put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    """`index_put` with an index for each dimension, all of the shape of the values."""
    import torch  # noqa: PLC0415

    given = [index for index in indices if index is not None]
    if any(index.dtype in {torch.bool, torch.uint8} for index in given):
        return _put_where(x, indices, values, accumulate)
    if accumulate:
        return _add_at(x, indices, values)
    if len(given) == x.dim():
        return NotImplemented
    axes = [axis for axis, index in enumerate(indices) if index is not None]
    is_together = axes == list(range(axes[0], axes[-1] + 1))
    places = torch.broadcast_tensors(*given)
    first, made = axes[0] if is_together else 0, places[0].dim()
    rest = [axis for axis in range(x.dim()) if axis not in axes]
    before, after = rest[:first], rest[first:]
    shape = [x.shape[a] for a in before], [x.shape[a] for a in after]
    rank = len(before) + made + len(after)
    full = []
    for axis in range(x.dim()):
        if axis in axes:
            place = places[axes.index(axis)]
            along = (*(1,) * len(before), *place.shape, *(1,) * len(after))
        else:
            place = torch.arange(x.shape[axis], device=x.device)
            own = before.index(axis) if axis in before else rank - len(after) + after.index(axis)
            along = (*(1,) * own, x.shape[axis], *(1,) * (rank - own - 1))
        full.append(place.reshape(along).expand(*shape[0], *places[0].shape, *shape[1]))
    return torch.index_put(x, full, values.expand(full[0].shape))


def _add_at(x: Any, indices: Sequence[Any], values: Any) -> Any:
    """`index_put` that adds, one after another: TVM's own adds from several threads at once."""
    import torch  # noqa: PLC0415

    axes = [axis for axis, index in enumerate(indices) if index is not None]
    rest = [axis for axis in range(x.dim()) if axis not in axes]
    places = torch.broadcast_tensors(*(index for index in indices if index is not None))
    flat: Any = 0
    for axis, place in zip(axes, places, strict=True):
        flat = flat * x.shape[axis] + place % x.shape[axis]
    flat = flat.reshape(-1)
    first = axes[0] if axes == list(range(axes[0], axes[-1] + 1)) else 0
    extents, after = [x.shape[axis] for axis in rest], len(rest) - first
    given = values.expand(*extents[:first], *places[0].shape, *extents[first:])
    own = range(first, given.dim() - after)
    given = given.permute(*own, *range(first), *range(given.dim() - after, given.dim()))
    given = given.reshape(flat.shape[0], *extents)
    front = x.permute(*axes, *rest)
    at = flat.reshape(-1, *(1,) * len(rest)).expand(given.shape)
    made = front.reshape(-1, *extents).scatter_add(0, at, given).reshape(front.shape)
    return made.permute(*sorted(range(x.dim()), key=[*axes, *rest].__getitem__))


def _put_where(x: Any, indices: Sequence[Any], values: Any, accumulate: bool) -> Any:
    """`index_put` at places that a boolean mask selects, with one value for all places."""
    import torch  # noqa: PLC0415

    *whole, mask = indices
    if any(index is not None for index in whole) or mask.dtype is not torch.bool:
        return NotImplemented
    rest = x.dim() - len(whole) - mask.dim()
    if values.dim() > rest and values.numel() != 1:
        is_flat = not whole and not rest and values.dim() == 1 and not accumulate
        return torch.masked_scatter(x, mask, values) if is_flat else NotImplemented
    values = values.reshape(()) if values.numel() == 1 else values
    if accumulate:
        values = x + values
    return torch.where(mask.reshape(*mask.shape, *(1,) * rest), values, x)


def _scatter_where(x: Any, mask: Any, source: Any) -> Any:
    import torch  # noqa: PLC0415

    x, mask = torch.broadcast_tensors(x, mask)
    place = mask.reshape(-1).cumsum(0) - 1
    taken = source.reshape(-1)[place.clamp(min=0)].reshape(mask.shape)
    return torch.where(mask, taken, x)


def _remainder_of_number(number: float, divisor: Any) -> Any:
    import torch  # noqa: PLC0415

    dtype = torch.result_type(number, divisor)
    return torch.remainder(divisor.new_full((), number, dtype=dtype), divisor.to(dtype))


def _repeats(repeats: Any, *, output_size: int | None = None) -> Any:
    import torch  # noqa: PLC0415

    if output_size is None:
        return NotImplemented
    places = torch.arange(output_size, device=repeats.device)
    return torch.searchsorted(repeats.cumsum(0), places, right=True)


def _scatter_by_name(x: Any, dim: int, index: Any, source: Any, *, reduce: str) -> Any:
    import torch  # noqa: PLC0415

    name = {"add": "sum", "multiply": "prod"}[reduce]
    return torch.scatter_reduce(x, dim, index, source, name)


def _searched(
    sequence: Any,
    x: Any,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Any = None,
) -> Any:
    import torch  # noqa: PLC0415

    if sorter is not None:
        return NotImplemented
    right = right or side == "right"
    if sequence.dim() == 1:
        return torch.bucketize(x, sequence, out_int32=out_int32, right=right)
    ends, numbers = sequence.unsqueeze(-2), x.unsqueeze(-1)
    is_before = ends <= numbers if right else ends < numbers
    return is_before.sum(-1).to(torch.int32 if out_int32 else torch.int64)


def _put_slice(  # noqa: PLR0917  (PyTorch's signature)
    x: Any,
    source: Any,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Any:
    """`slice_scatter` into a dynamic extent: TVM's own operator cannot compute its end."""
    import torch  # noqa: PLC0415

    extent = x.shape[dim]
    if isinstance(extent, int) or step != 1:
        return NotImplemented
    begin = 0 if start is None else start
    begin = begin + extent if begin < 0 else begin
    after = begin + source.shape[dim]
    parts = [x.narrow(dim, 0, begin), source, x.narrow(dim, after, extent - after)]
    return torch.cat([part for part in parts if part.shape[dim] != 0], dim)


def _sorted(x: Any, *, stable: bool | None, dim: int = -1, descending: bool = False) -> Any:
    """Sort as TVM does, which keeps the order of equal elements."""
    import torch  # noqa: PLC0415

    return torch.ops.aten.sort.default(x, dim, descending)


def _sorted_narrow(x: Any, dim: int = -1, descending: bool = False) -> Any:
    import torch  # noqa: PLC0415

    if x.dtype not in {torch.bool, torch.uint8, torch.int8, torch.int16}:
        return NotImplemented
    values, places = torch.ops.aten.sort.default(x.to(torch.int32), dim, descending)
    return values.to(x.dtype), places


def _top(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    import torch  # noqa: PLC0415

    return NotImplemented if sorted else torch.topk(x, k, dim, largest)


def _windows(x: Any, dimension: int, size: int, step: int) -> Any:
    import torch  # noqa: PLC0415

    axis = dimension % x.dim()
    count = (x.shape[axis] - size) // step + 1
    starts = torch.arange(count, device=x.device).unsqueeze(1) * step
    places = (starts + torch.arange(size, device=x.device)).reshape(-1)
    taken = x.index_select(axis, places)
    shape = (*x.shape[:axis], count, size, *x.shape[axis + 1 :])
    return taken.reshape(shape).movedim(axis + 1, -1)

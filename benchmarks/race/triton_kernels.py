"""Kernels in Triton's language, written for the race; its compiler needs no GPU.

Pointers come first, then extents, then strides, then constants of the compiler.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def matmul(
    a, b, d, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    """D (m, n) = A (m, k) B, with B column-major. K is a multiple of BK.

    Programs go down GROUP tiles before they go to the next column of tiles. Rows and columns
    beyond the end are read from the beginning again, and not written.
    """
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    program = tl.program_id(0)
    of_group = GROUP * tiles_n
    first = program // of_group * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    tile_m = first + program % of_group % height
    tile_n = program % of_group // height
    rows = (tile_m * BM + tl.arange(0, BM)) % m
    columns = (tile_n * BN + tl.arange(0, BN)) % n
    depth = tl.arange(0, BK)
    a_tile = a + rows[:, None] * k + depth[None, :]
    b_tile = b + columns[None, :] * k + depth[:, None]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, k // BK):
        total = tl.dot(tl.load(a_tile), tl.load(b_tile), total)
        a_tile += BK
        b_tile += BK
    rows = tile_m * BM + tl.arange(0, BM)
    columns = tile_n * BN + tl.arange(0, BN)
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(d + rows[:, None] * n + columns[None, :], total.to(tl.float16), mask=mask)


@triton.jit
def attention(
    q,
    k,
    v,
    d,
    tokens,
    factor,
    DEPTH: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    """Attention of one head and BM rows, by an online softmax (Dao et al., FlashAttention, 2022).

    Tokens are a multiple of BM and of BN. `factor` is log2(e) / sqrt(DEPTH).
    """
    first = tl.program_id(0) * BM
    head = tl.program_id(1) * tokens * DEPTH
    rows = first + tl.arange(0, BM)
    keys = tl.arange(0, BN)
    depth = tl.arange(0, DEPTH)
    q_tile = tl.load(q + head + rows[:, None] * DEPTH + depth[None, :])
    k_tile = k + head + keys[None, :] * DEPTH + depth[:, None]
    v_tile = v + head + keys[:, None] * DEPTH + depth[None, :]
    highest = tl.full((BM,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((BM,), dtype=tl.float32)
    output = tl.zeros((BM, DEPTH), dtype=tl.float32)
    # Tiles that a causal mask does not cut come first; the loop after it has the others.
    whole = first if CAUSAL else tokens
    for _ in range(0, whole, BN):
        scores = tl.dot(q_tile, tl.load(k_tile))
        now = tl.maximum(highest, tl.max(scores, 1) * factor)
        weights = tl.exp2(scores * factor - now[:, None])
        kept = tl.exp2(highest - now)
        total = total * kept + tl.sum(weights, 1)
        output = tl.dot(weights.to(tl.float16), tl.load(v_tile), output * kept[:, None])
        highest = now
        k_tile += BN * DEPTH
        v_tile += BN * DEPTH
    if CAUSAL:
        for at in range(first, first + BM, BN):
            scores = tl.dot(q_tile, tl.load(k_tile))
            seen = rows[:, None] >= (at + keys)[None, :]
            scores = tl.where(seen, scores, float("-inf"))
            now = tl.maximum(highest, tl.max(scores, 1) * factor)
            weights = tl.exp2(scores * factor - now[:, None])
            kept = tl.exp2(highest - now)
            total = total * kept + tl.sum(weights, 1)
            output = tl.dot(weights.to(tl.float16), tl.load(v_tile), output * kept[:, None])
            highest = now
            k_tile += BN * DEPTH
            v_tile += BN * DEPTH
    place = d + head + rows[:, None] * DEPTH + depth[None, :]
    tl.store(place, (output / total[:, None]).to(tl.float16))


@triton.jit
def softmax(x, d, columns, WIDTH: tl.constexpr):
    """Softmax of one row in one tile."""
    place = tl.arange(0, WIDTH)
    row = tl.program_id(0) * columns
    values = tl.load(x + row + place, mask=place < columns, other=float("-inf")).to(tl.float32)
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(d + row + place, (powers / tl.sum(powers, 0)).to(tl.float16), mask=place < columns)


@triton.jit
def layer_norm(x, scale, shift, d, columns, epsilon, WIDTH: tl.constexpr):
    """Layer norm of one row in one tile."""
    place = tl.arange(0, WIDTH)
    mask = place < columns
    row = tl.program_id(0) * columns
    values = tl.load(x + row + place, mask=mask, other=0.0).to(tl.float32)
    away = tl.where(mask, values - tl.sum(values, 0) / columns, 0.0)
    root = tl.rsqrt(tl.sum(away * away, 0) / columns + epsilon)
    result = away * root * tl.load(scale + place, mask=mask) + tl.load(shift + place, mask=mask)
    tl.store(d + row + place, result.to(tl.float16), mask=mask)


@triton.jit
def rms_norm(x, scale, d, columns, epsilon, WIDTH: tl.constexpr):
    """RMS norm of one row in one tile."""
    place = tl.arange(0, WIDTH)
    mask = place < columns
    row = tl.program_id(0) * columns
    values = tl.load(x + row + place, mask=mask, other=0.0).to(tl.float32)
    root = tl.rsqrt(tl.sum(values * values, 0) / columns + epsilon)
    result = values * root * tl.load(scale + place, mask=mask)
    tl.store(d + row + place, result.to(tl.float16), mask=mask)


@triton.jit
def depthwise(
    x,
    w,
    d,
    pixels,
    height,
    extent,
    channels,
    R: tl.constexpr,
    STRIDE: tl.constexpr,
    PAD: tl.constexpr,
    BP: tl.constexpr,
    BC: tl.constexpr,
):
    """Depthwise convolution of square images: BP pixels of the result, BC channels.

    `pixels` counts the results of all images, each of (extent, extent) pixels; images have
    (height, height). The filter is (R, R, channels).
    """
    places = tl.program_id(0) * BP + tl.arange(0, BP)
    lanes = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = lanes < channels
    column = places % extent * STRIDE - PAD
    row = places // extent % extent * STRIDE - PAD
    image = places // (extent * extent)
    total = tl.zeros((BP, BC), dtype=tl.float32)
    for r in tl.static_range(R):
        for s in tl.static_range(R):
            y, z = row + r, column + s
            seen = (y >= 0) & (y < height) & (z >= 0) & (z < height) & (places < pixels)
            place = ((image * height + y) * height + z) * channels
            mask = seen[:, None] & inside[None, :]
            values = tl.load(x + place[:, None] + lanes[None, :], mask=mask, other=0.0)
            weights = tl.load(w + (r * R + s) * channels + lanes, mask=inside, other=0.0)
            total += values.to(tl.float32) * weights.to(tl.float32)[None, :]
    mask = (places < pixels)[:, None] & inside[None, :]
    tl.store(d + places[:, None] * channels + lanes[None, :], total.to(tl.float16), mask=mask)

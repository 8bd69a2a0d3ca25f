"""Tensor maps: what the driver refuses, and fields that kernels change."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from benchmarks.harness.driver import Array, Buffer, CudaError, Driver, entry
from tests.vgpu.refusals import Code, refused
from tests.vgpu.tensor_maps import HEADER, Tiling, encode, image
from tests.vgpu.test_tensor_copies import REGISTERS, SHARED, coordinates, filled, load_kernel

BASE = Tiling(box=(16, 8))


def tiled_arguments(address: int) -> dict[str, object]:
    """Of cuTensorMapEncodeTiled, for a map of rank 3 that is fine."""
    return {
        "map": ctypes.c_void_p(0),
        "type": 6,
        "rank": ctypes.c_uint32(3),
        "address": ctypes.c_void_p(address),
        "dims": (ctypes.c_uint64 * 5)(64, 8, 4, 2, 2),
        "strides": (ctypes.c_uint64 * 4)(128, 1024, 4096, 8192),
        "box": (ctypes.c_uint32 * 5)(16, 4, 2, 1, 1),
        "steps": (ctypes.c_uint32 * 5)(1, 1, 1, 1, 1),
        "interleave": 0,
        "swizzle": 0,
        "promotion": 0,
        "fill": 0,
    }


def u32(*values: int) -> object:
    return (ctypes.c_uint32 * 5)(*values)


def u64(*values: int) -> object:
    return (ctypes.c_uint64 * 5)(*values)


WRONG: dict[str, tuple[dict[str, object], tuple[str, ...]]] = {
    "no map": ({"map": ctypes.c_void_p(0)}, ("tensorMap",)),
    "map": ({"map": ctypes.c_void_p(32)}, ("tensorMap", "multiple of 64")),
    "type": ({"type": 16}, ("tensorDataType is 16",)),
    "rank 0": ({"rank": ctypes.c_uint32(0)}, ("tensorRank is 0", "1 to 5")),
    "rank 6": ({"rank": ctypes.c_uint32(6)}, ("tensorRank is 6", "1 to 5")),
    "no address": ({"address": None}, ("globalAddress is null",)),
    "address": ({"address": ctypes.c_void_p(4104)}, ("globalAddress", "multiple of 16")),
    "address 32": (
        {"address": ctypes.c_void_p(4112), "interleave": 2, "swizzle": 1},
        ("globalAddress", "multiple of 32"),
    ),
    "no dims": ({"dims": None}, ("globalDim is null",)),
    "dim 0": ({"dims": u64(64, 0, 4)}, ("globalDim[1] is 0", "1 to 2^32")),
    "dim": ({"dims": u64(64, 8, 2**32 + 1)}, ("globalDim[2] is 4294967297", "1 to 2^32")),
    "no strides": ({"strides": None}, ("globalStrides is null",)),
    "stride": ({"strides": u64(136, 1024)}, ("globalStrides[0] is 136", "multiple of 16")),
    "stride 32": (
        {"strides": u64(128, 1040), "interleave": 2, "swizzle": 1},
        ("globalStrides[1] is 1040", "multiple of 32"),
    ),
    "far stride": ({"strides": u64(128, 2**40)}, ("globalStrides[1] is 1099511627776", "2^40")),
    "no box": ({"box": None}, ("boxDim is null",)),
    "box 0": ({"box": u32(16, 0, 2)}, ("boxDim[1] is 0", "1 to 256")),
    "box": ({"box": u32(16, 4, 257)}, ("boxDim[2] is 257", "1 to 256")),
    "huge box": ({"box": u32(16, 4, 65537)}, ("boxDim[2] is 65537", "1 to 256")),
    "inner box": ({"box": u32(12, 4, 2)}, ("boxDim[0] is 12", "24")),
    "no steps": ({"steps": None}, ("elementStrides is null",)),
    "step 0": ({"steps": u32(1, 1, 0)}, ("elementStrides[2] is 0", "1 to 8")),
    "step": ({"steps": u32(1, 9, 1)}, ("elementStrides[1] is 9", "1 to 8")),
    "interleave": ({"interleave": 3}, ("interleave is 3",)),
    "interleave 32": ({"interleave": 2}, ("swizzle is none", "interleave 32B")),
    "interleave of rank 2": (
        {"interleave": 1, "rank": ctypes.c_uint32(2)},
        ("tensorRank is 2", "interleave 16B"),
    ),
    "swizzle": ({"swizzle": 7}, ("swizzle is 7",)),
    "swizzle 32": ({"swizzle": 1, "box": u32(24, 4, 2)}, ("boxDim[0] is 24", "16 elements")),
    "swizzle 64": ({"swizzle": 2, "box": u32(40, 4, 2)}, ("boxDim[0] is 40", "32 elements")),
    "swizzle 128": ({"swizzle": 3, "box": u32(72, 4, 2)}, ("boxDim[0] is 72", "64 elements")),
    "promotion": ({"promotion": 4}, ("l2Promotion is 4", "0 to 3")),
    "fill": ({"fill": 2}, ("oobFill is 2",)),
    "fill of integers": ({"fill": 1, "type": 1}, ("oobFill", "NaN")),
    "fill of packed": ({"fill": 1, "type": 13, "box": u32(32, 4, 2)}, ("oobFill", "NaN")),
}


def encode_tiled(driver: Driver, changes: dict[str, object]) -> None:
    room = ctypes.create_string_buffer(192)
    aligned = (ctypes.addressof(room) + 63) // 64 * 64
    address = driver.buffer(np.zeros(16384, np.uint8)).address
    arguments = tiled_arguments(address) | {"map": ctypes.c_void_p(aligned)} | changes
    driver.call("cuTensorMapEncodeTiled", *arguments.values())


@pytest.mark.parametrize("name", WRONG)
def test_arguments_that_are_wrong_are_named(hopper: Driver, name: str) -> None:
    changes, words = WRONG[name]
    with refused(Code.INVALID_VALUE, "cuTensorMapEncodeTiled", *words):
        encode_tiled(hopper, changes)


EDGES: dict[str, dict[str, object]] = {
    "as it is": {},
    "box": {"box": u32(256, 256, 1)},
    "swizzle": {"box": u32(64, 4, 2), "swizzle": 3},
    "steps": {"steps": u32(1, 8, 8)},
    "dim": {"dims": u64(64, 8, 2**32)},
    "rank 5": {"rank": ctypes.c_uint32(5)},
    "rank 1": {"rank": ctypes.c_uint32(1), "strides": None},
    "stride": {"strides": u64(128, 2**40 - 16)},
    "nan": {"fill": 1},
}


@pytest.mark.parametrize("name", EDGES)
def test_the_last_values_that_are_fine(hopper: Driver, name: str) -> None:
    encode_tiled(hopper, EDGES[name])


def test_an_older_device_has_no_tensor_maps(driver: Driver) -> None:
    with refused(Code.NOT_SUPPORTED, "sm_80", "tensor memory accelerator"):
        encode_tiled(driver, {})


@pytest.mark.parametrize(
    ("offset", "words"),
    [(32, ()), (8, ("globalAddress", "multiple of 16")), (None, ("globalAddress is null",))],
)
def test_the_host_replaces_an_address(
    hopper: Driver, offset: int | None, words: tuple[str, ...]
) -> None:
    array = filled((40, 64), np.float16)
    tensor = hopper.buffer(array)
    raw = hopper.read(encode(hopper, tensor, BASE)).tobytes()
    room = ctypes.create_string_buffer(192)
    aligned = (ctypes.addressof(room) + 63) // 64 * 64
    ctypes.memmove(aligned, raw, 128)
    address = None if offset is None else ctypes.c_void_p(tensor.address + offset)
    arguments = (ctypes.c_void_p(aligned), address)
    if words:
        with refused(Code.INVALID_VALUE, "cuTensorMapReplaceAddress", *words):
            hopper.call("cuTensorMapReplaceAddress", *arguments)
        return
    hopper.call("cuTensorMapReplaceAddress", *arguments)
    moved = hopper.buffer(np.frombuffer(ctypes.string_at(aligned, 128), np.uint8).copy())
    out = hopper.buffer(np.zeros(256, np.uint8))
    hopper.run(load_kernel((8, 0), 256, 256), [moved, out])
    expected = image(array, (8 + 16, 0), BASE)
    np.testing.assert_array_equal(hopper.read(out), expected)


# --- tensormap.replace ---------------------------------------------------------------------------

SPACES = {
    "global": (
        "",
        "[%d3]",
        "global",
        "fence.proxy.tensormap::generic.release.gpu;",
    ),
    "shared": (
        # CUTLASS brings the map to shared memory, changes it there, and copies it back.
        """mov.u32 %a, map; mov.u32 %c0, 0;
        M: cvt.u64.u32 %d2, %c0; add.u64 %d2, %d3, %d2; ld.global.u32 %v, [%d2];
        add.u32 %n, %a, %c0; st.shared.u32 [%n], %v;
        add.u32 %c0, %c0, 4; setp.lt.u32 %p, %c0, 128; @%p bra M;""",
        "[map]",
        "shared::cta",
        "",
    ),
}
# CUTLASS gives a shared address as 64 bits.
SPACES["shared, wide"] = (
    SPACES["shared"][0] + "mov.u32 %a, map; cvt.u64.u32 %d0, %a;",
    "[%d0]",
    *SPACES["shared"][2:],
)
COPY_BACK = (
    "tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
    "[%d3], [map], 128;"
)


def replacing_kernel(
    fields: list[str], at: tuple[int, ...], nbytes: int, count: int, space: str
) -> str:
    """Changes fields of the map p0 ("name[.ordinal] value"), and then loads through it to p1."""
    before, where, name, after = SPACES[space]
    changes = ""
    for change in fields:
        field, value = change.split()
        field, _, ordinal = field.partition("@")
        wide = field in ("global_address", "global_stride")
        immediate = field in ("elemtype", "interleave_layout", "swizzle_mode", "fill_mode")
        if wide:
            changes += f"mov.u64 %d2, {value}; "
        elif not immediate:
            changes += f"mov.u32 %v, {value}; "
        new = value if immediate else "%d2" if wide else "%v"
        number = f"{ordinal}, " if ordinal else ""
        changes += f"tensormap.replace.tile.{field}.{name}.b1024.{'b64' if wide else 'b32'} "
        changes += f"{where}, {number}{new};\n"
    body = f"""
        ld.param.u64 %d3, [p0]; ld.param.u64 %d1, [p1]; mov.u32 %t, %tid.x;
        setp.ne.u32 %p, %t, 0; @%p bra JOIN;
        {before}
        {changes}
        {after}
        JOIN: bar.warp.sync -1;
        {"" if space == "global" else COPY_BACK}
        fence.proxy.tensormap::generic.acquire.gpu [%d3], 128;
        setp.ne.u32 %p, %t, 0; @%p bra WAIT;
        mbarrier.init.shared::cta.b64 [bar], 1;
        fence.mbarrier_init.release.cluster;
        mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], {nbytes};
        cp.async.bulk.tensor.{len(at)}d.shared::cluster.global.mbarrier::complete_tx::bytes
            [tile], [%d3, {coordinates(at)}], [bar];
        WAIT: bar.sync 0;
        AGAIN: mbarrier.try_wait.parity.shared::cta.b64 %q, [bar], 0; @!%q bra AGAIN;
        mov.u32 %a, tile;
        NEXT: setp.ge.u32 %p, %t, {count // 4}; @%p bra DONE;
        shl.b32 %n, %t, 2; add.u32 %v, %a, %n; ld.shared.u32 %v, [%v];
        cvt.u64.u32 %d2, %n; add.u64 %d2, %d1, %d2; st.global.u32 [%d2], %v;
        add.u32 %t, %t, 32; bra NEXT;
        DONE: ret;"""
    shared = SHARED + " .shared .align 128 .b8 map[128];"
    return HEADER.replace("9.0", "8.6") + entry(["u64", "u64"], REGISTERS, body, shared)


def mapped(hopper: Driver, like: Array, tiling: Tiling, address: int) -> Buffer:
    return encode(hopper, Buffer(address, like), tiling)


# What the map says first, the fields that are changed, and what the copy then does.
REPLACED: dict[str, tuple[Tiling, list[str], Tiling, tuple[int, int]]] = {
    "box": (Tiling(box=(32, 4)), ["box_dim@0 16", "box_dim@1 8"], BASE, (8, 3)),
    "step": (BASE, ["element_stride@1 3"], Tiling(box=(16, 8), steps=(1, 3)), (0, 1)),
    "swizzle": (BASE, ["swizzle_mode 1"], Tiling(box=(16, 8), swizzle=1), (8, 0)),
    "swizzle 128": (BASE, ["swizzle_mode 3"], Tiling(box=(16, 8), swizzle=3), (8, 0)),
    "fill": (BASE, ["fill_mode 1"], Tiling(box=(16, 8), nan=True), (56, 36)),
    "type": (
        Tiling(box=(16, 8), kind=1),
        ["elemtype 6", "fill_mode 1"],
        Tiling(box=(16, 8), nan=True),
        (56, 36),
    ),
}


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("name", REPLACED)
def test_a_field_that_a_kernel_replaces(hopper: Driver, name: str, space: str) -> None:
    first, fields, then, at = REPLACED[name]
    array = filled((40, 64), np.float16)
    tensor = hopper.buffer(array)
    expected = image(array, at, then)
    steps = then.steps or (1, 1)
    nbytes = then.box[0] * -(-then.box[1] // steps[1]) * 2
    out = hopper.buffer(np.zeros(expected.size, np.uint8))
    kernel = replacing_kernel(fields, at, nbytes, expected.size, space)
    hopper.run(kernel, [encode(hopper, tensor, first), out])
    np.testing.assert_array_equal(hopper.read(out), expected)


def test_zeros_become_a_map_field_by_field(hopper: Driver) -> None:
    """Triton makes the descriptors of its kernels so."""
    array = filled((40, 64), np.float16)
    tensor = hopper.buffer(array)
    fields = [
        f"global_address {tensor.address}",
        "rank 1",
        *("box_dim@0 16", "box_dim@1 8", "global_dim@0 64", "global_dim@1 40"),
        *("global_stride@0 128", "element_stride@0 1", "element_stride@1 1"),
        *("elemtype 6", "interleave_layout 0", "swizzle_mode 0", "fill_mode 0"),
    ]
    expected = image(array, (8, 3), BASE)
    out = hopper.buffer(np.zeros(expected.size, np.uint8))
    kernel = replacing_kernel(fields, (8, 3), expected.size, expected.size, "global")
    hopper.run(kernel, [hopper.buffer(np.zeros(128, np.uint8)), out])
    np.testing.assert_array_equal(hopper.read(out), expected)


@pytest.mark.parametrize("byte", range(128))
def test_bytes_that_something_else_changed_are_a_fault(hopper: Driver, byte: int) -> None:
    """All but one word, of which CUTLASS 4.7 clears a bit for small tensors."""
    array = filled((40, 64), np.float16)
    raw = hopper.read(encode(hopper, hopper.buffer(array), BASE)).copy()
    raw.view(np.uint8)[byte] ^= 0x20
    out = hopper.buffer(np.zeros(256, np.uint8))
    kernel = load_kernel((8, 0), 256, 256)
    if 8 <= byte < 16:
        hopper.run(kernel, [hopper.buffer(raw), out])
        np.testing.assert_array_equal(hopper.read(out), image(array, (8, 0), BASE))
        return
    with pytest.raises(CudaError, match="map"):
        hopper.run(kernel, [hopper.buffer(raw), out])


@pytest.mark.parametrize("space", SPACES)
def test_a_map_of_another_tensor(hopper: Driver, space: str) -> None:
    """Address, extents and strides, as a grouped GEMM changes them from problem to problem."""
    array = filled((5, 24, 48), np.float16)
    tensor = hopper.buffer(array)
    other = hopper.buffer(np.zeros((8, 8), np.float16))
    like = np.zeros((1, 8, 8), np.float16)
    first = Tiling(box=(16, 8, 2), strides=(16, 128))
    fields = [
        f"global_address {tensor.address}",
        *(f"global_dim@{k} {extent}" for k, extent in enumerate((48, 24, 5))),
        *("global_stride@0 96", "global_stride@1 2304"),
    ]
    then, at = Tiling(box=(16, 8, 2)), (40, 20, 3)
    expected = image(array, at, then)
    out = hopper.buffer(np.zeros(expected.size, np.uint8))
    kernel = replacing_kernel(fields, at, expected.size, expected.size, space)
    hopper.vgpu.set_option("check", "all")
    hopper.vgpu.clear_findings()
    hopper.run(kernel, [mapped(hopper, like, first, other.address), out])
    np.testing.assert_array_equal(hopper.read(out), expected)
    assert hopper.vgpu.findings() == []


@pytest.mark.parametrize("space", SPACES)
def test_rank_and_interleave(hopper: Driver, space: str) -> None:
    """A map of [slices, W, 8 channels] with rank 2 becomes one of N, W and C in slices."""
    memory = filled((2, 2, 8, 8), np.float16)  # N, slices, W, channels
    tensor = hopper.buffer(memory)
    first = Tiling(box=(8, 4), strides=(16,))
    like = np.zeros((32, 8), np.float16)
    fields = [
        "rank 2",
        *("global_dim@0 16", "global_dim@1 8", "global_dim@2 2"),
        *("global_stride@0 16", "global_stride@1 256"),
        *("box_dim@0 16", "box_dim@2 1", "element_stride@2 1"),
        "interleave_layout 1",
    ]
    out = hopper.buffer(np.zeros(128, np.uint8))
    kernel = replacing_kernel(fields, (0, 2, 1), 128, 128, space)
    hopper.run(kernel, [mapped(hopper, like, first, tensor.address), out])
    np.testing.assert_array_equal(hopper.read(out).view(np.float16), memory[1, :, 2:6].ravel())


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        (["element_stride@1 9"], "a field with 9"),
        (["rank 5"], "a field with 5"),
        (["box_dim@0 12"], "boxDim[0] is 12"),
        (["swizzle_mode 1", "box_dim@0 32"], "boxDim[0] is 32"),
        (["global_stride@0 24"], "globalStrides[0] is 24"),
        (["global_address 8"], "globalAddress"),
    ],
)
def test_fields_that_cannot_be(hopper: Driver, fields: list[str], word: str) -> None:
    tensor = hopper.buffer(filled((40, 64), np.float16))
    out = hopper.buffer(np.zeros(256, np.uint8))
    with refused(Code.LAUNCH_FAILED, word):
        hopper.run(
            replacing_kernel(fields, (0, 0), 256, 256, "global"),
            [encode(hopper, tensor, BASE), out],
        )


def test_bytes_that_are_no_map(hopper: Driver) -> None:
    nothing = hopper.buffer(np.full(128, 7, np.uint8))
    with refused(Code.LAUNCH_FAILED, "128 bytes", "tensor map"):
        hopper.run(replacing_kernel(["rank 1"], (0, 0), 256, 256, "global"), [nothing, nothing])

"""Images, launches, and what is refused: every message names the thing and the remedy."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.harness.driver import HEADER, CudaError, Driver, entry
from boltgen.device.vgpu import Vgpu
from boltgen.errors import VgpuError
from tests.vgpu.refusals import Code, refused

STORE = "ld.param.u64 %d0, [p0]; mov.u32 %r0, {value}; st.global.u32 [%d0], %r0; ret;"
REGISTERS = ".reg .pred %p; .reg .b32 %r<8>; .reg .b64 %d<4>;"


def storing(value: int, target: str = "sm_80") -> str:
    header = f".version 8.0\n.target {target}\n.address_size 64\n"
    return header + entry(["u64"], REGISTERS, STORE.format(value=value))


def fatbin(*entries: tuple[int, int, str], flags: int = 0) -> bytes:
    """A fatbin of (kind, capability, text) entries, as nvcc lays them out; kind 1 is PTX."""
    body = b""
    for kind, capability, text in entries:
        payload = text.encode() + b"\0"
        body += struct.pack(
            "<HHIQIIHHIIIQQQ",
            kind,
            0x101,
            72,
            len(payload),
            0,
            0,
            0,
            8,
            capability,
            0,
            0,
            flags,
            0,
            0,
        ).ljust(72, b"\0")
        body += payload
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def stored(driver: Driver, image: str | bytes) -> int:
    out = driver.buffer(np.zeros(1, np.uint32))
    driver.launch(driver.function(driver.load(image), "k"), [out])
    return int(driver.read(out)[0])


def test_the_best_ptx_of_a_fatbin_is_taken(driver: Driver, vgpu: Vgpu) -> None:
    image = fatbin(
        (2, 80, "machine code"),
        (1, 75, storing(75, "sm_75")),
        (1, 80, storing(80)),
        (1, 90, storing(90, "sm_90")),
    )
    assert stored(driver, image) == 80
    vgpu.set_option("device", "sm_75")
    assert stored(driver, image) == 75
    vgpu.set_option("device", "sm_89")
    assert stored(driver, image) == 80


def test_images_without_usable_ptx_say_how_to_compile(driver: Driver) -> None:
    with refused(Code.NO_BINARY_FOR_DEVICE, "sm_80", "compute_80"):
        driver.load(fatbin((2, 80, "machine code")))
    with refused(Code.NO_BINARY_FOR_DEVICE, "--no-compress"):
        driver.load(fatbin((1, 80, "zstd"), flags=0x8000))
    with refused(Code.NO_BINARY_FOR_DEVICE, "-gencode"):
        driver.load(b"\x7fELF" + bytes(64))
    with refused(Code.INVALID_IMAGE):
        driver.load(b"hello there, this is no image")
    with refused(Code.NO_BINARY_FOR_DEVICE, "sm_90", "vgpu sm_80"):
        driver.load(storing(1, "sm_90"))


@pytest.mark.parametrize(
    ("at", "bytes_", "words"),
    [
        (8, b"\xff" * 8, ["header"]),
        (8, struct.pack("<Q", 1 << 31), ["header", "2147483664 bytes"]),
        (16 + 4, b"\0\0\0\0", ["byte 16", "0 bytes"]),
        (16 + 8, b"\xff" * 8, ["18446744073709551615"]),
    ],
)
def test_a_corrupt_fatbin_is_refused(
    driver: Driver, at: int, bytes_: bytes, words: list[str]
) -> None:
    image = bytearray(fatbin((1, 80, storing(1))))
    image[at : at + len(bytes_)] = bytes_
    with refused(Code.INVALID_IMAGE, "fatbin", *words):
        driver.load(bytes(image))


def test_newer_ptx_is_refused_by_its_version(driver: Driver) -> None:
    newer = storing(1).replace(".version 8.0", ".version 9.7")
    with refused(Code.UNSUPPORTED_PTX_VERSION, "9.7", "9.4", "ptx_version"):
        driver.load(newer)
    with refused(Code.INVALID_PTX, ".version"):
        driver.load(storing(1).replace(".version 8.0", ".version new"))


def test_handles_that_are_none_are_refused(driver: Driver) -> None:
    module = driver.load(storing(1))
    function = driver.function(module, "k")
    foreign = ctypes.c_void_p(ctypes.addressof(ctypes.create_string_buffer(256)))
    out = driver.buffer(np.zeros(1, np.uint32))
    for wrong in (None, foreign):
        with pytest.raises(CudaError) as caught:
            driver.launch(wrong, [out])  # type: ignore[arg-type]
        assert caught.value.code == 400
        with pytest.raises(CudaError) as caught:
            driver.call("cuModuleUnload", wrong)
        assert caught.value.code == 400
    driver.call("cuModuleUnload", module)
    with refused(Code.INVALID_HANDLE, "cuLaunchKernel"):
        driver.launch(function, [out])


def test_fresh_memory_holds_nans_or_zeros(driver: Driver, vgpu: Vgpu) -> None:
    def fresh() -> int:
        address = ctypes.c_uint64()
        value = ctypes.c_uint32(7)
        driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(64))
        driver.call("cuMemcpyDtoH_v2", ctypes.byref(value), address, ctypes.c_size_t(4))
        driver.call("cuMemFree_v2", address)
        return value.value

    assert fresh() == 0xFFFFFFFF
    vgpu.set_option("fresh", "zero")
    assert fresh() == 0


def test_an_unknown_instruction_is_named_with_kernel_and_line(driver: Driver) -> None:
    body = "mov.u32 %r1, 1;\nfrobnicate.sync.b32 %r0, %r1;\n" + STORE.format(value=1)
    module = driver.load(entry(["u64"], REGISTERS, body))  # loading is fine: it may never run
    out = driver.buffer(np.zeros(1, np.uint32))
    with pytest.raises(CudaError) as caught:
        driver.launch(driver.function(module, "k"), [out])
    text = str(caught.value)
    assert caught.value.code == 218
    assert "kernel 'k'" in text
    assert "'frobnicate.sync.b32' (PTX line 9)" in text
    assert driver.read(out)[0] == 0
    assert stored(driver, storing(4)) == 4, "other kernels still run"


def test_a_syntax_error_is_reported_with_its_line(driver: Driver) -> None:
    with refused(Code.INVALID_PTX, "PTX line 5"):
        driver.load(HEADER + "\n.visible ?entry k()\n{ ret; }")


def test_shapes_that_no_gpu_takes_are_refused(driver: Driver) -> None:
    function = driver.function(driver.load(storing(1)), "k")
    out = driver.buffer(np.zeros(1, np.uint32))
    with refused(Code.INVALID_VALUE, "(1024,2,1)", "(1024,1024,64)", "1024 threads"):
        driver.launch(function, [out], block=(1024, 2, 1))
    with refused(Code.INVALID_VALUE, "(0,1,1)"):
        driver.launch(function, [out], grid=(0, 1, 1))
    with refused(Code.INVALID_VALUE, "(1,70000,1)", "65535"):
        driver.launch(function, [out], grid=(1, 70000, 1))
    with refused(Code.NOT_FOUND, "nothing"):
        driver.function(driver.load(storing(1)), "nothing")
    bounded = storing(1).replace(")\n{", ")\n.maxntid 64, 1, 1\n{")
    with refused(Code.INVALID_VALUE, "__launch_bounds__", "64", "96"):
        driver.launch(driver.function(driver.load(bounded), "k"), [out], block=(96, 1, 1))


def test_limits_that_the_ptx_sets_are_kept(driver: Driver) -> None:
    out = driver.buffer(np.zeros(1, np.uint32))
    required = storing(1).replace(")\n{", ")\n.reqntid 64, 1, 1\n{")
    function = driver.function(driver.load(required), "k")
    driver.launch(function, [out], block=(64, 1, 1))
    with refused(Code.INVALID_VALUE, "64 threads", "reqntid"):
        driver.launch(function, [out], block=(32, 1, 1))

    registers = 4

    def taken(limits: str) -> int:
        value = ctypes.c_int()
        ptx = storing(1).replace(")\n{", f")\n{limits}\n{{")
        kernel = driver.function(driver.load(ptx), "k")
        driver.call("cuFuncGetAttribute", ctypes.byref(value), registers, kernel)
        return value.value

    assert taken(".maxnreg 12") <= 12 < taken("")
    assert taken(".maxntid 1024 .minnctapersm 4") == 16, "65536 / (4 * 1024)"


def test_slack_lets_reads_past_the_end_pass(driver: Driver, vgpu: Vgpu) -> None:
    body = "ld.param.u64 %d0, [p0]; ld.global.u32 %r0, [%d0+64]; st.global.u32 [%d0], %r0; ret;"
    function = driver.function(driver.load(entry(["u64"], REGISTERS, body)), "k")
    vgpu.set_option("slack", 4096)
    out = driver.buffer(np.zeros(16, np.uint32))
    vgpu.set_option("slack", 0)
    driver.launch(function, [out])
    assert driver.read(out)[0] == 0xFFFFFFFF
    with refused(Code.ILLEGAL_ADDRESS, "0 bytes past", "64-byte allocation"):
        driver.launch(function, [driver.buffer(np.zeros(16, np.uint32))])


def test_a_device_may_have_fewer_multiprocessors_than_its_model(driver: Driver, vgpu: Vgpu) -> None:
    def multiprocessors() -> int:
        count = ctypes.c_int()
        driver.call("cuDeviceGetAttribute", ctypes.byref(count), 16, 0)
        return count.value

    own = multiprocessors()
    vgpu.set_option("sms", 8)
    few = multiprocessors()
    vgpu.set_option("sms", 0)
    assert (few, multiprocessors()) == (8, own)
    with pytest.raises(VgpuError, match="sms=many: want 0 to 1024"):
        vgpu.set_option("sms", "many")


def test_shared_memory_beyond_48_kib_must_be_asked_for(driver: Driver) -> None:
    function = driver.function(driver.load(storing(1)), "k")
    out = driver.buffer(np.zeros(1, np.uint32))
    maximum_dynamic_shared = 8
    driver.launch(function, [out], shared=48 << 10)
    with refused(Code.INVALID_VALUE, "65536 bytes", "cudaFuncSetAttribute"):
        driver.launch(function, [out], shared=64 << 10)
    driver.call("cuFuncSetAttribute", function, maximum_dynamic_shared, 64 << 10)
    driver.launch(function, [out], shared=64 << 10)
    with refused(Code.INVALID_VALUE, "vgpu sm_80 (A100)", "166912"):
        driver.call("cuFuncSetAttribute", function, maximum_dynamic_shared, 164 << 10)


def test_a_trap_and_an_assertion_stop_the_kernel(driver: Driver, vgpu: Vgpu) -> None:
    trap = "mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 70;\n@%p trap;\n ret;"
    function = driver.function(driver.load(entry([], REGISTERS, trap)), "k")
    with refused(Code.LAUNCH_FAILED, "kernel 'k'", "thread (70,0,0)", "@%p trap"):
        driver.launch(function, [], block=(96, 1, 1))
    vgpu.clear_error()
    before = """
    .global .align 1 .b8 text[6] = {120, 32, 62, 32, 49, 0};
    .global .align 1 .b8 file[5] = {97, 46, 99, 117, 0};
    .extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d,
    .param .b64 e);
    """
    body = """
    { .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
    mov.u64 %d0, text; cvta.global.u64 %d0, %d0; st.param.b64 [a], %d0;
    mov.u64 %d1, file; cvta.global.u64 %d1, %d1; st.param.b64 [b], %d1;
    st.param.b32 [c], 17; st.param.b64 [d], %d1; st.param.b64 [e], 1;
    call.uni __assertfail, (a, b, c, d, e); } ret;
    """
    function = driver.function(driver.load(entry([], REGISTERS, body, before)), "k")
    with refused(Code.ASSERT, "x > 1", "a.cu:17"):
        driver.launch(function, [])


def test_printf(driver: Driver, capfd: pytest.CaptureFixture[str]) -> None:
    text = ", ".join(str(b) for b in b"thread %d: %.2f 100%%\n\0")
    before = f"""
    .global .align 1 .b8 text[{text.count(",") + 1}] = {{{text}}};
    .extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
    """
    body = """
    .local .align 8 .b8 depot[16]; mov.u32 %r0, %tid.x; mov.u64 %d0, depot; cvta.local.u64 %d1, %d0;
    st.local.u32 [%d0], %r0; st.local.u64 [%d0+8], 0d3FF8000000000000;
    { .param .b64 a; .param .b64 b; .param .b32 r; mov.u64 %d2, text; cvta.global.u64 %d2, %d2;
    st.param.b64 [a], %d2; st.param.b64 [b], %d1; call.uni (r), vprintf, (a, b); } ret;
    """
    function = driver.function(driver.load(entry([], REGISTERS, body, before)), "k")
    driver.launch(function, [], block=(2, 1, 1))
    assert capfd.readouterr().out == "thread 0: 1.50 100%\nthread 1: 1.50 100%\n"


def test_launches_are_recorded(driver: Driver, vgpu: Vgpu) -> None:
    vgpu.clear_launches()
    out = driver.buffer(np.zeros(1, np.uint32))
    function = driver.function(driver.load(storing(1)), "k")
    driver.launch(function, [out], grid=(3, 2, 1), block=(64, 1, 1), shared=128)
    (record,) = vgpu.launches()
    assert (record.kernel, record.grid, record.block) == ("k", (3, 2, 1), (64, 1, 1))
    assert record.dynamic_shared_bytes == 128
    assert record.warp_instructions == 4 * 12  # ld, mov, st and ret of 12 warps
    assert record.wall_s > 0
    assert record.cpu_s > 0
    vgpu.clear_launches()
    assert vgpu.launches() == []


def test_options_say_what_they_know(vgpu: Vgpu) -> None:
    with pytest.raises(VgpuError, match="know sm_75, sm_80"):
        vgpu.set_option("device", "sm_50")
    with pytest.raises(VgpuError, match="no option 'speed'"):
        vgpu.set_option("speed", "high")
    with pytest.raises(VgpuError, match="want 1 to 1024"):
        vgpu.set_option("threads", 0)


def _run_python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    variables = {"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin", **environment}
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, env=variables, check=False)


def test_the_environment_sets_the_device(library_folder: Path) -> None:
    program = f"""
import ctypes
cudart = ctypes.CDLL({str(library_folder / "libcudart.so.13")!r})
value = ctypes.c_int()
found = []
for attribute in (75, 76, 16, 97):
    assert cudart.cudaDeviceGetAttribute(ctypes.byref(value), attribute, 0) == 0
    found.append(value.value)
print(found)
"""
    done = _run_python(program, BOLTGEN_VGPU="device=sm_86,threads=1,check=memcheck")
    assert done.stdout.strip() == "[8, 6, 72, 101376]", done.stderr
    done = _run_python(program, BOLTGEN_VGPU="device=sm_1")
    assert "BOLTGEN_VGPU: vgpu option device=sm_1" in done.stderr


def test_another_cuda_library_in_the_process_is_refused(
    library_folder: Path, tmp_path: Path
) -> None:
    source = tmp_path / "other.c"
    source.write_text("int cuInit(unsigned flags) { return flags; }\n")
    other = tmp_path / "libcuda.so.1"
    command = ["g++", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", other, source]
    subprocess.run(command, check=True)
    program = f"""
import ctypes
from pathlib import Path
from boltgen.device.vgpu import load
ctypes.CDLL({str(other)!r})
try:
    load(Path({str(library_folder)!r}))
except RuntimeError as error:
    print(error)
"""
    done = _run_python(program)
    assert f"has loaded {other} already" in done.stdout, done.stderr
    assert "load the virtual GPU before importing tvm" in done.stdout

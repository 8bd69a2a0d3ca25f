"""What `arch` means where a user gives it: a name, a name that leaves something out, `native`."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

import boltgen
from boltgen.arch import ARCHES
from boltgen.build import gpu_probe as module
from boltgen.build.vgpu import vgpu_environment, vgpu_libraries
from boltgen.device.asked_arch import asked_arch, native_arch
from boltgen.errors import DeviceError, ModelImportError, UnknownArchError
from boltgen.settings import settings_from

LOST = (
    "kernels for sm_90 lack wgmma and TMA, which kernels of the family cutlass3 have: the same "
    "GPUs run them with arch sm_90a"
)


@pytest.mark.parametrize("name", ARCHES)
def test_only_sm_90_leaves_something_out(name: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert asked_arch(name) is ARCHES[name]
    assert caplog.messages == ([LOST] if name == "sm_90" else [])


def test_a_compilation_says_it_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), pytest.raises(ModelImportError, match="absent"):
        boltgen.compile("absent.onnx", arch="sm_90", tune="5trials", device="vgpu")
    assert caplog.messages == [LOST]
    caplog.clear()
    with caplog.at_level(logging.WARNING), pytest.raises(ModelImportError, match="absent"):
        boltgen.tune("absent.onnx", arch="sm_90", device="vgpu")
    assert caplog.messages == [LOST]


# Prints what a machine with one GPU takes for `native`, and what it tunes for by default.
_CHOICES = """
from boltgen.device.asked_arch import asked_arch
from boltgen.tuner import _arch_of
print(asked_arch("native").name, _arch_of(None, "cuda").name, _arch_of("native", "cuda:0").name)
print(_arch_of("sm_80", "cuda").name, _arch_of(None, "vgpu").name)
"""


@pytest.mark.parametrize(
    ("device", "chosen"), [("sm_80", "sm_80"), ("sm_90", "sm_90a"), ("sm_121", "sm_121")]
)
def test_native_is_what_makes_the_most_of_the_gpu(device: str, chosen: str) -> None:
    settings = settings_from()
    # The virtual GPU in CUDA's place, as a program without boltgen would find it.
    env = vgpu_environment(settings, vgpu_libraries(settings), {"device": device})
    command = [sys.executable, "-c", _CHOICES]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    assert said.split() == [chosen, chosen, chosen, "sm_80", "sm_80"]


# What a bench of a GPU says of its device, for each arch that it is opened for.
_BENCHES = """
import contextlib
from boltgen.pipeline import PipelineOptions
from boltgen.tuner import open_bench
for arch in ("sm_90", "sm_90a"):
    with contextlib.closing(open_bench("cuda", arch, PipelineOptions())) as bench:
        print(bench.arch, bench.device.arch, bench.device.kind.value)
try:
    open_bench("cuda", "sm_80", PipelineOptions())
except Exception as error:
    print(error)
"""


def test_a_hopper_gpu_is_tuned_for_either_of_its_architectures() -> None:
    settings = settings_from()
    env = vgpu_environment(settings, vgpu_libraries(settings), {"device": "sm_90"})
    command = [sys.executable, "-c", _BENCHES]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    first, second, refused = said.splitlines()
    assert (first, second) == ("sm_90 sm_90 cuda", "sm_90a sm_90a cuda")
    assert "kernels for sm_80 are not measured on it: give --arch sm_90a" in refused


def test_native_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = module._ASK.replace("libcuda.so.1", "libcuda-of-no-machine.so.1")
    monkeypatch.setattr(module, "_ASK", absent)
    with pytest.raises(DeviceError, match=r"no GPU: libcuda-of-no-machine.*--arch sm_80"):
        asked_arch("native")
    with pytest.raises(DeviceError, match=r"no GPU: .*virtual GPU: --device vgpu"):
        boltgen.tune("absent.onnx")


def test_native_on_a_gpu_that_boltgen_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ASK", "print('sm_110')")
    with pytest.raises(DeviceError, match=r"GPU is a device of sm_110: unknown arch 'sm_110'"):
        native_arch()


def test_a_gpu_that_is_not_there() -> None:
    settings = settings_from()
    env = vgpu_environment(settings, vgpu_libraries(settings), {"device": "sm_80"})
    program = "from boltgen.device.asked_arch import native_arch; native_arch(7)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert "DeviceError: no GPU: the driver reports" in done.stderr


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        *(("A100", "sm_80"), ("a100", "sm_80"), ("NVIDIA A100-SXM4-80GB", "sm_80")),
        *(("h100", "sm_90a"), ("H100 PCIe", "sm_90a"), ("H100 80GB HBM3", "sm_90a")),
        *(("GH200 480GB", "sm_90a"), ("H200 NVL", "sm_90a")),
        *(("RTX 4090", "sm_89"), ("rtx4090", "sm_89"), ("NVIDIA GeForce RTX 4070 Ti", "sm_89")),
        *(("4090", "sm_89"), ("L40S", "sm_89"), ("L4", "sm_89"), ("RTX 6000 Ada", "sm_89")),
        *(("t4", "sm_75"), ("Tesla T4", "sm_75"), ("RTX 6000", "sm_75"), ("2080 Ti", "sm_75")),
        *(("A10G", "sm_86"), ("a10", "sm_86"), ("RTX A6000", "sm_86"), ("RTX 3090", "sm_86")),
        *(("B200", "sm_100"), ("GB200", "sm_100"), ("B300", "sm_103"), ("RTX 5090", "sm_120")),
        *(("RTX PRO 6000 Blackwell Workstation Edition", "sm_120"), ("DGX Spark", "sm_121")),
    ],
)
def test_a_gpu_by_its_name(name: str, arch: str) -> None:
    assert asked_arch(name).name == arch


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("h10", r"'h10'; did you mean 'H100' \(sm_90a\)\?"),
        ("RTX 4900", r"did you mean 'RTX 4090' \(sm_89\)\?"),
        ("L4OS", r"did you mean 'L40S' \(sm_89\)\?"),
        ("V100", "V100 is a GPU of sm_70, for which boltgen makes no kernels"),
        ("Jetson AGX Orin", "ORIN is a GPU of sm_87, for which"),
        ("GTX 1660 Ti", "GTX 1660 is a GPU of sm_75 without tensor cores"),
        ("6000", r"unknown arch '6000'\. Known: sm_75"),
        ("sm80", r"did you mean 'sm_80'\?"),
    ],
)
def test_a_gpu_that_is_not_known_or_has_no_kernels(name: str, said: str) -> None:
    with pytest.raises(UnknownArchError, match=said):
        asked_arch(name)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(UnknownArchError, match="unknown arch 'hopper'"):
        asked_arch("hopper")

"""Building the virtual GPU, with a make that is a shell script."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from boltgen.arch import ARCHES
from boltgen.build import vgpu
from boltgen.build.cache import Cache
from boltgen.errors import BoltgenError, ToolchainError
from boltgen.paths import resource_dir
from boltgen.settings import Settings, settings_from
from tests.build.fakes import write_script

# The argument OUT=<folder> says where the libraries go; -n asks for the plan only.
MAKE = """for argument; do case $argument in
OUT=*) out=${argument#OUT=};;
-n) echo 'g++ -c a.cpp'; echo 'g++ -c b.cpp'; exit 0;;
esac; done
mkdir -p $out/obj; : > $out/obj/a.o; : > $out/obj/b.o
"""
LIBRARIES = """
for name in libvgpu.so libcuda.so.1 libcudart.so.13 libcudart.so.12; do
  echo $name > $out/$name
done
"""


class Recorder:
    """A reporter that remembers."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def start(self, title: str, total: int) -> None:
        self.heard.append(f"{title} {total}")

    def step(self, what: str) -> None:
        self.heard.append(what)

    def end(self) -> None:
        self.heard.append("end")


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "vgpu"
    folder.mkdir()
    (folder / "Makefile").write_text("all:\n")
    (folder / "a.cpp").write_text("int a;\n")
    monkeypatch.setattr(vgpu, "resource_dir", lambda name: tmp_path / name)
    return folder


def settings_with(folder: Path, make: str | None) -> Settings:
    write_script(folder / "bin" / "g++", "echo 'g++ 12.2'")
    if make is not None:
        write_script(folder / "bin" / "make", f"PATH=/bin:/usr/bin\n{make}")
    return settings_from({"PATH": str(folder / "bin"), "BOLTGEN_CACHE_DIR": str(folder / "cache")})


def test_it_is_built_once_and_told(source: Path, tmp_path: Path) -> None:
    settings, recorder = settings_with(tmp_path, MAKE + LIBRARIES), Recorder()
    folder = vgpu.vgpu_libraries(settings, reporter=recorder)
    assert (folder / "libcuda.so.1").read_text() == "libcuda.so.1\n"
    assert not (folder / "obj").exists()
    assert recorder.heard == ["building the virtual GPU 2", "a.o", "b.o", "end"]
    assert vgpu.vgpu_libraries(settings, reporter=recorder) == folder
    assert len(recorder.heard) == 4
    (source / "notes.txt").write_text("not a source")
    assert vgpu.vgpu_libraries(settings) == folder
    (source / "a.cpp").write_text("int b;\n")
    assert vgpu.vgpu_libraries(settings) != folder


def test_the_devices_are_the_rows_of_boltgen_arch(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_with(tmp_path, MAKE + LIBRARIES)
    folder = vgpu.vgpu_libraries(settings)
    table = (folder / "devices.inc").read_text()
    assert table == vgpu.device_table()
    of_ours = ["75", "80", "86", "89", "90"]
    devices = re.findall(r"\.capability = (\d+)", table)
    assert devices == [*of_ours, "100", "103", "120", "121"]
    assert re.findall(r"\.clock_khz = (\d+)000", table)[devices.index("90")] == "1980"
    # One row more in boltgen/arch.py is one device more, and another build.
    row = replace(ARCHES["sm_89"], name="sm_88", device="RTX 4095")
    monkeypatch.setitem(ARCHES, "sm_88", row)
    assert '"vgpu sm_88 (RTX)"' in vgpu.device_table()
    assert vgpu.vgpu_libraries(settings) != folder


def test_the_virtual_gpu_has_no_second_table() -> None:
    sources = {
        path: path.read_text()
        for path in resource_dir("vgpu").rglob("*")
        if path.suffix in (".cpp", ".h")
    }
    assert [
        path.name
        for path, text in sources.items()
        if "VGPU_DEVICES" in text and "#include V" in text
    ] == ["device.cpp"]
    products = [arch.device.split()[0] for arch in ARCHES.values()]
    for path, text in sources.items():
        code = "\n".join(line.partition("//")[0] for line in text.splitlines())
        assert not any(re.search(rf"\b{name}\b", code) for name in products), path


def test_no_make(source: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"make is not on PATH.*apt install make"):
        vgpu.vgpu_libraries(settings_with(tmp_path, None))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            "echo 'a.cpp:1:1: error: no such thing'; echo 'make: *** [a.o] Error 1'; exit 2",
            "a.cpp:1:1: error: no such thing",
        ),
        ("echo g++ -c a.cpp; echo 'make: *** [a.o] Killed'; echo bye; exit 2", "[a.o] Killed"),
        ("true", "no libvgpu.so was made"),
    ],
)
def test_a_build_that_fails(source: Path, tmp_path: Path, body: str, said: str) -> None:
    settings = settings_with(tmp_path, MAKE + body)
    with pytest.raises(ToolchainError) as caught:
        vgpu.vgpu_libraries(settings)
    assert said in str(caught.value)
    assert "(g++ 12.2)" in str(caught.value)
    assert f"by hand: make -C {source} OUT=<folder>" in str(caught.value)
    assert not list((Cache(tmp_path / "cache").root / "building").iterdir())


def test_a_plan_that_fails(source: Path, tmp_path: Path) -> None:
    """Make's own reason is shown, and nothing is started."""
    made = "make: *** No rule to make target '../boltgen/arch.py', needed by 'devices.inc'.  Stop."
    settings, recorder = settings_with(tmp_path, f'echo "{made}" >&2; exit 2'), Recorder()
    with pytest.raises(ToolchainError, match="No rule to make target") as caught:
        vgpu.vgpu_libraries(settings, reporter=recorder)
    assert made in str(caught.value)
    assert recorder.heard == []


AVX2 = "avx2 fma f16c bmi1 bmi2 abm"
CPUS = {
    "avx512 avx2 generic": f"avx512f avx512bw avx512dq avx512vl avx512cd {AVX2}",
    "avx2 generic": f"avx512f avx512bw {AVX2}",
    "generic": "sse2 avx f16c fma",
}


@pytest.mark.parametrize("isas", CPUS)
def test_it_is_built_for_the_best_instruction_set_of_the_cpu(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, isas: str
) -> None:
    cpu = tmp_path / "cpuinfo"
    cpu.write_text(f"processor\t: 0\nflags\t\t: fpu {CPUS[isas]} sse\nbugs\t\t: avx2\n")
    usable = vgpu.host_isas(cpu)
    assert " ".join(usable) == isas
    monkeypatch.setattr(vgpu, "host_isas", lambda: usable)
    settings = settings_with(tmp_path, MAKE + 'echo "$@" > $out/asked\n' + LIBRARIES)
    folder = vgpu.vgpu_libraries(settings)
    assert f"ISAS={usable[0]} OUT=" in (folder / "asked").read_text()


def test_machines_that_share_a_cache_have_builds_of_their_own(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_with(tmp_path, MAKE + 'echo "$@" > $out/asked\n' + LIBRARIES)
    monkeypatch.setattr(vgpu, "host_isas", lambda: ("avx512", "avx2", "generic"))
    new = vgpu.vgpu_libraries(settings)
    for_both = vgpu.vgpu_libraries(replace(settings, vgpu_isas=("generic", "avx512")))
    assert "ISAS=avx512 generic OUT=" in (for_both / "asked").read_text()
    monkeypatch.setattr(vgpu, "host_isas", lambda: ("avx2", "generic"))
    old = vgpu.vgpu_libraries(settings)
    assert len({new, old, for_both}) == 3
    assert vgpu.vgpu_key(settings) == old.name
    with pytest.raises(BoltgenError, match=r"AS=avx512: this CPU cannot .*add one of avx2, gen"):
        vgpu.vgpu_libraries(replace(settings, vgpu_isas=("avx512",)))
    with pytest.raises(BoltgenError, match="no instruction set 'sse2'; give some of avx512, avx2"):
        vgpu.vgpu_libraries(replace(settings, vgpu_isas=("avx2", "sse2")))


def test_the_libraries_of_a_wheel_need_no_compiler(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_with(tmp_path, MAKE + LIBRARIES)
    built, wheel = vgpu.vgpu_libraries(settings), tmp_path / "vgpu_prebuilt"
    vgpu.pack_prebuilt(built, wheel, "g++ 12.2")
    monkeypatch.setattr(vgpu, "prebuilt_dir", lambda name: tmp_path / f"{name}_prebuilt")
    bare = replace(settings, search_path=str(tmp_path))
    assert vgpu.vgpu_libraries(bare) == wheel
    key = vgpu.vgpu_key(bare)
    assert key != built.name
    assert vgpu.vgpu_libraries(replace(settings, vgpu_isas=("generic",))) != wheel

    vgpu.pack_prebuilt(built, tmp_path / "other" / "vgpu_prebuilt", "g++ 13.1")
    with monkeypatch.context() as patch:
        patch.setattr(vgpu, "prebuilt_dir", lambda name: tmp_path / "other" / f"{name}_prebuilt")
        assert vgpu.vgpu_key(bare) != key
    (wheel / "libcuda.so.1").rename(wheel / "away")
    assert vgpu.vgpu_libraries(settings) == built
    (wheel / "away").rename(wheel / "libcuda.so.1")
    (source / "a.cpp").write_text("int changed;\n")
    assert vgpu.vgpu_libraries(settings) not in (wheel, built)

"""Negative controls made of CUTLASS's code for sm_90a: a token changed, in the source or in the PTX
of the built program, is caught; and the originals verify themselves with nothing found."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.cuda_programs import build_programs, program_unit
from boltgen.build.toolchain import find_toolchain
from boltgen.device.vgpu_program import run_program
from boltgen.settings import settings_from
from tests.vgpu.cuda_programs import SOURCES

TUTORIAL = "hopper_tutorial"
GEMM = "hopper_gemm"
# The tutorial's loop goes on loading where the tensor has ended, and its blocks end meanwhile.
KNOWN = {TUTORIAL: ("synccheck: copies never waited for: the block ends",), GEMM: ()}
# Which kernel of the PTX runs: the tutorial has one for matrices by columns before it.
KERNEL = {TUTORIAL: 1, GEMM: 0}


def built(name: str, intact: str = "", broken: str = "") -> bytes:
    """A program of `SOURCES`, with the tutorial's text changed where the two differ."""
    settings = settings_from()
    tools = find_toolchain(settings)
    root = tools.cutlass.include.parent
    text = (SOURCES / f"{name}.cu").read_text(encoding="utf-8")
    tutorial = root / "examples" / "cute" / "tutorial" / "hopper" / "wgmma_tma_sm90.cu"
    source = tutorial.read_text(encoding="utf-8")
    assert source.count(intact) == 1 or intact == broken
    text = text.replace('#include "wgmma_tma_sm90.cu"', source.replace(intact, broken))
    unit = program_unit(
        name,
        text,
        tools,
        arch="sm_90a",
        flags=("--expt-relaxed-constexpr", "-w"),
        include=(tools.cutlass.include, root / "tools" / "util" / "include"),
    )
    (program,) = build_programs([unit])
    return program.read_bytes()


def changed(image: bytes, kernel: int, intact: str, broken: str, which: int) -> bytes:
    """The program with another token in the place of the pattern's group, in the PTX."""
    start = image.index(b".version 9")
    end = image.index(b"\0", start)
    entries = [start + m.start() for m in re.finditer(rb"\.entry ", image[start:end])] + [end]
    first, last = entries[kernel : kernel + 2]
    found = list(re.finditer(intact.encode(), image[first:last]))
    assert len(found) > which, f"{intact}: the PTX has no such instruction"
    low, high = (first + place for place in found[which].span(1))
    assert len(broken) <= high - low
    assert broken.encode() != image[low:high]
    return image[:low] + broken.encode().ljust(high - low) + image[high:]


def said(image: bytes, libraries: Path, folder: Path) -> list[str]:
    """The lines of a program under all checks."""
    program = folder / "program"
    program.write_bytes(image)
    program.chmod(0o755)
    done = run_program(
        [str(program)],
        libraries=libraries,
        options={"device": "sm_90", "check": "all", "threads": "1"},
        settings=settings_from(),
        timeout_s=600,
        capture=True,
    )
    return (done.stdout + done.stderr).splitlines()


def unknown(lines: list[str], program: str) -> list[str]:
    """What the virtual GPU complains of, but for what it says of the original."""
    found = [line for line in lines if line.startswith("vgpu: ")]
    return [f for f in found if not any(k in f for k in KNOWN[program])]


@pytest.mark.parametrize("program", [TUTORIAL, GEMM])
def test_the_original_verifies_itself_and_nothing_is_found(
    library_folder: Path, tmp_path: Path, program: str
) -> None:
    lines = said(built(program), library_folder, tmp_path)
    assert "Passed" in lines
    assert unknown(lines, program) == []
    assert sum(line.startswith("vgpu: ") for line in lines) == len(KNOWN[program])


@dataclass(frozen=True)
class Control:
    """A token of the PTX, what takes its place (spaces, where nothing), and what is said then."""

    name: str
    program: str
    intact: str
    broken: str
    says: str
    which: int = 0


PHASE = r"try_wait\.parity\.shared::cta\.b64 P1, \[%r\d+\], (%r\d+),"
BARRIER = r"mbarrier at offset \d+ of shared memory"
STUCK = rf"vgpu: deadlock: .*for phase {{}} of the {BARRIER}, which misses {{}}"
LOAD = r"mbarrier::complete_tx::bytes\.L2::cache_hint "

CONTROLS = [
    Control("the bytes are waited for in the other phase", TUTORIAL, PHASE, "1",
            rf"access to a copy under way: reads .* the bulk copy of PTX line \d+, issued by "
            rf"warp 0 for phase 0 of the {BARRIER}"),
    Control("the consumers are waited for in the other phase", TUTORIAL, PHASE, "1",
            STUCK.format("1", "128 of 128 arrivals"), 1),
    Control("one consumer too many", TUTORIAL, r"mov\.u32\s+%r\d+, (128);", "129",
            STUCK.format("0", "1 of 129 arrivals")),
    Control("one producer too many", TUTORIAL,
            r"mov\.u32\s+%r\d+, (1);\s*\{\s*mbarrier\.init", "2",
            STUCK.format("0", "1 of 2 arrivals")),
    Control("expect_tx of 16 bytes too few", TUTORIAL, r"mov\.[bu]32\s+%r\d+, (32768);", "32752",
            STUCK.format("0", "0 of 1 arrivals and has had 16 bytes more than expect_tx told")),
    Control("expect_tx of one copy of two", TUTORIAL, r"mov\.[bu]32\s+%r\d+, (32768);", "16384",
            rf"expect_tx does not add up: .* for phase 0 of the {BARRIER}"),
    Control("expect_tx of 16 bytes too many", TUTORIAL, r"mov\.[bu]32\s+%r\d+, (32768);", "32784",
            STUCK.format("0", "0 of 1 arrivals and 16 bytes")),
    Control("no arrival of the consumers", TUTORIAL,
            r"(mbarrier\.arrive\.shared::cta\.b64 _, \[%r\d+\];)", "",
            STUCK.format("0", "128 of 128 arrivals")),
    Control("no wgmma.fence", TUTORIAL, r"(wgmma\.fence\.sync\.aligned;)", "",
            "missing wgmma.fence"),
    Control("no wgmma.commit_group", TUTORIAL, r"(wgmma\.commit_group\.sync\.aligned;)", "",
            "register of a wgmma under way"),
    Control("no wgmma.wait_group", TUTORIAL, r"(wgmma\.wait_group\.sync\.aligned 0;)", "",
            rf"write into what wgmma reads: .*{BARRIER}"),
    Control("wgmma.wait_group leaves one", TUTORIAL, r"wgmma\.wait_group\.sync\.aligned (0);", "1",
            rf"write into what wgmma reads: .*{BARRIER}"),
    Control("no wait for the cluster", TUTORIAL, r"(barrier\.cluster\.wait\.aligned;)", "",
            rf"mbarrier not ordered: uses the {BARRIER}, which warp 0 initialised"),
    Control("a swizzle of 64 bytes", TUTORIAL,
            r"or\.b64\s+%rd\d+, %rd\d+, (4611686293305360384);", "9223372311732748288",
            r"Failed: \d+ wrong|leads out of a row of its swizzle"),
    Control("a copy completes at the first barrier", TUTORIAL,
            LOAD + r"\[%r\d+\], \[%rd2, \{%r\d+, %r6\}\], \[(%r\d+)\]", "{first}",
            rf"expect_tx does not add up: .* for phase 0 of the {BARRIER}", 1),
    Control("no fence before the store", GEMM, r"(fence\.proxy\.async\.shared::cta;)", "",
            "missing proxy fence: a bulk copy reads what warp 4 stored"),
    Control("no barrier before the store", GEMM, r"(bar\.sync %r\d+, %r\d+;)", "",
            r"read after write: a bulk copy reads what warp \d+ wrote"),
    Control("no wait for the store", GEMM, r"(cp\.async\.bulk\.wait_group\.read 0;)", "",
            r"copies never waited for: the warp ends while the bulk copy of PTX line \d+"),
    Control("no release by the consumers", GEMM,
            r"(mbarrier\.arrive\.shared::cluster\.b64 _, \[remAddr32\];)", "",
            STUCK.format("0", "2 of 2 arrivals")),
    Control("the producer waits for one phase only", GEMM, PHASE, "1",
            rf"{BARRIER}: 1 arrivals in a phase that misses 0 of 1", 4),
    Control("the producer waits for the other phase", GEMM, PHASE, "0",
            STUCK.format("0", "2 of 2 arrivals"), 4),
    Control("the producer gives up no registers", GEMM,
            r"(setmaxnreg\.dec\.sync\.aligned\.u32 40;)", "",
            r"vgpu: deadlock: .*at setmaxnreg\.inc for \d+ registers a thread more, where 0 are"),
    Control("a multicast to the first block alone", GEMM, r"mov\.u16\s+%rs\d+, (3);", "1",
            STUCK.format(r"\d", ".*")),
    Control("the consumers give up their registers", GEMM,
            r"(setmaxnreg\.inc\.sync\.aligned\.u32 \d+;)",
            "setmaxnreg.dec.sync.aligned.u32 24;",
            r"registers beyond setmaxnreg: a wgmma and those under way hold 32 .* left 24"),
    Control("the cluster is not waited for", GEMM, r"(barrier\.cluster\.wait\.aligned;)", "",
            r"a bulk copy completes at offset \d+ of shared memory of CTA 1, where no mbarrier is"),
    Control("wgmma.wait_group leaves two", GEMM, r"wgmma\.wait_group\.sync\.aligned (1);", "2",
            rf"write after read: a bulk copy overwrites what a wgmma read.*{BARRIER}"),
]  # fmt: skip


@pytest.mark.parametrize("control", CONTROLS, ids=lambda c: f"{c.program}: {c.name}")
def test_a_token_of_the_ptx(library_folder: Path, tmp_path: Path, control: Control) -> None:
    image = built(control.program)
    kernel = KERNEL[control.program]
    broken = control.broken
    if broken == "{first}":
        start = image.index(b".version 9")
        entry = [m.end() for m in re.finditer(rb"\.entry ", image[start:])][kernel] + start
        first = re.search(rb"arrive\.expect_tx\.shared::cta\.b64 _, \[(%r\d+)\]", image[entry:])
        assert first
        broken = first[1].decode()
    lines = said(
        changed(image, kernel, control.intact, broken, control.which), library_folder, tmp_path
    )
    meant = [line for line in lines if re.search(control.says, line)]
    assert meant, "\n".join(unknown(lines, control.program))
    for line in meant:
        if line.startswith("vgpu: "):
            assert re.search(
                r"in kernel '.*', block \(\d+,\d+,\d+\), thread \(.*\), PTX line ", line
            )


UNSEEN = rf"(access to a copy under way|read after write): .*{BARRIER}"
SOURCE_CONTROLS = {
    "the bytes are not waited for": (
        "ProducerBarType::wait(&producer_mbar[read_pipe], read_state.phase());",
        "",
        UNSEEN,
    ),
    "the phase of the writer": (
        "producer_mbar[read_pipe], read_state.phase()",
        "producer_mbar[read_pipe], write_state.phase()",
        UNSEEN,
    ),
    "a barrier of the block in the place of the cluster's": (
        "cluster_sync();",
        "__syncthreads();",
        rf"missing mbarrier fence: a bulk copy uses the {BARRIER}, which warp 0 initialised",
    ),
}


@pytest.mark.parametrize("name", SOURCE_CONTROLS)
def test_a_token_of_the_source(library_folder: Path, tmp_path: Path, name: str) -> None:
    intact, broken, says = SOURCE_CONTROLS[name]
    lines = said(built(TUTORIAL, intact, broken), library_folder, tmp_path)
    assert any(re.search(says, line) for line in unknown(lines, TUTORIAL)), "\n".join(lines)

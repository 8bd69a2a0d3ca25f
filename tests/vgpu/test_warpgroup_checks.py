"""What may go wrong around wgmma: each broken kernel is found, and the intact one by no check."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pytest

from benchmarks.harness.driver import Array, CudaError, Driver, entry
from boltgen.device.vgpu import Finding
from tests.vgpu.refusals import Code, refused
from tests.vgpu.warpgroup import HEADER, SHARED, Layout, Wgmma, braces, copy_image, unpack_sums

MMA = Wgmma(16)
FROM_REGISTERS = Wgmma(16, layout_a=None)
SUMS = [f"%c{k}" for k in range(MMA.sums)]
LEFT = [f"%a{k}" for k in range(4)]
REGISTERS = (
    ".reg .b32 %t, %n, %x, %y, %z, %a<4>, %c<8>; .reg .f32 %f<4>; .reg .b64 %d<4>;"
    f" .reg .pred %p, %q; .shared .align 1024 .b8 s[{SHARED}];"
)

# Two products, one after the other, and the sums to memory.
BODY = """
    {copy}
    {zero}
    {left}
    mov.u64 %d2, {a}; mov.u64 %d3, {b}; setp.eq.u32 %p, 0, 0;
    wgmma.fence.sync.aligned;
    {product}
    {product}
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    ld.param.u64 %d0, [p1]; mad.wide.u32 %d0, %t, 32, %d0;
    {store}
    ret;
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel (image, sums out), and what it multiplies."""

    mma: Wgmma = MMA

    def operands(self) -> tuple[Array, Array]:
        rng = np.random.default_rng(1)
        return tuple(rng.integers(-2, 3, (x, 16)).astype(np.float16) for x in (64, 16))  # type: ignore[return-value]

    def text(self) -> str:
        image = np.zeros(SHARED, np.uint8)
        a, b = self.operands()
        left = Layout().place(a, 0, image)
        right = Layout().place(b, 1 << 15, image)
        from_registers = self.mma.layout_a is None
        return BODY.format(
            copy=copy_image(SHARED // 4),
            zero=" ".join(f"mov.b32 {r}, 0;" for r in SUMS),
            left=" ".join(f"mov.b32 {r}, 0x3c003c00;" for r in LEFT) if from_registers else "",
            a=left,
            b=right,
            product=self.mma.text(SUMS, braces(LEFT) if from_registers else "%d2", "%d3", "", "%p"),
            store=" ".join(f"st.global.u32 [%d0+{4 * k}], {r};" for k, r in enumerate(SUMS)),
        )

    def run(self, driver: Driver, body: str, threads: int = 128) -> tuple[Array, list[Finding]]:
        image = np.zeros(SHARED, np.uint8)
        a, b = self.operands()
        Layout().place(a, 0, image)
        Layout().place(b, 1 << 15, image)
        out = driver.buffer(np.zeros((128, 8), np.uint32))
        ptx = HEADER + entry(["u64"] * 2, REGISTERS, body)
        driver.run(ptx, [driver.buffer(image), out], block=(threads, 1, 1))
        found = unpack_sums(driver.read(out), 16, np.dtype(np.float32))
        return found, driver.vgpu.findings()

    def wanted(self) -> Array:
        a, b = self.operands()
        out: Array = 2 * a.astype(np.float32) @ b.astype(np.float32).T
        return out


COMMIT = "wgmma.commit_group.sync.aligned;"
WAIT = "wgmma.wait_group.sync.aligned 0;"
FENCE = "wgmma.fence.sync.aligned;"


@dataclass(frozen=True)
class Control:
    """How the kernel is broken, and what must be said of it then."""

    name: str
    intact: str
    broken: str
    check: str
    kind: str
    at: str  # what the line of the finding has
    mma: Wgmma = MMA


CONTROLS = [
    Control(
        "a sum read before the wait",
        WAIT,
        "add.f32 %f0, %c3, 0f3f800000;\n" + WAIT,
        "racecheck",
        "register of a wgmma under way",
        "add.f32",
    ),
    Control(
        "a sum moved before the wait",
        WAIT,
        "mov.b32 %x, %c3;\n" + WAIT,
        "racecheck",
        "register of a wgmma under way",
        "mov.b32 %x",
    ),
    Control(
        "a sum written before the wait",
        WAIT,
        "mov.b32 %c3, 0;\n" + WAIT,
        "racecheck",
        "register of a wgmma under way",
        "mov.b32 %c3",
    ),
    Control(
        "the wait comes for another group",
        WAIT,
        "wgmma.wait_group.sync.aligned 1;",
        "racecheck",
        "register of a wgmma under way",
        "st.global",
    ),
    Control(
        "not committed",
        COMMIT,
        "",
        "racecheck",
        "register of a wgmma under way",
        "st.global",
    ),
    Control(
        "a register of A written before the wait",
        WAIT,
        "mov.b32 %a1, 0;\n" + WAIT,
        "racecheck",
        "register of a wgmma under way",
        "mov.b32 %a1",
        FROM_REGISTERS,
    ),
    Control("no fence", FENCE, "", "racecheck", "missing wgmma.fence", "wgmma.mma_async"),
    Control(
        "a sum written after the fence",
        FENCE,
        FENCE + "\nmov.b32 %c3, 0;",
        "racecheck",
        "missing wgmma.fence",
        "wgmma.mma_async",
    ),
    Control(
        "a register of A written after the fence",
        FENCE,
        FENCE + "\nmov.b32 %a1, 0;",
        "racecheck",
        "missing wgmma.fence",
        "wgmma.mma_async",
        FROM_REGISTERS,
    ),
    Control(
        "no proxy fence",
        "fence.proxy.async;",
        "",
        "racecheck",
        "missing proxy fence",
        "wgmma.mma_async",
    ),
    Control(
        "no barrier after the stores",
        "bar.sync 0;",
        "",
        "racecheck",
        "read after write",
        "wgmma.mma_async",
    ),
    Control(
        "an operand overwritten before the wait",
        WAIT,
        "mov.u32 %z, s; st.shared.u32 [%z+32768], %x;\n" + WAIT,
        "racecheck",
        "write into what wgmma reads",
        "st.shared",
    ),
    Control("never waited for", WAIT, "", "synccheck", "wgmma never waited for", "wgmma.mma_async"),
]


@pytest.mark.parametrize("mma", [MMA, FROM_REGISTERS], ids=["shared", "registers"])
def test_the_intact_kernel_is_right_and_nothing_is_found(
    checked_hopper: Driver, mma: Wgmma
) -> None:
    kernel = Kernel(mma)
    for copies in ("late", "eager"):
        checked_hopper.vgpu.set_option("copies", copies)
        found, findings = kernel.run(checked_hopper, kernel.text())
        assert findings == []
        if mma is MMA:
            np.testing.assert_array_equal(found, kernel.wanted())


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_a_broken_kernel_is_found(checked_hopper: Driver, control: Control) -> None:
    kernel = Kernel(control.mma)
    text = kernel.text()
    assert control.intact in text
    _, findings = kernel.run(checked_hopper, text.replace(control.intact, control.broken))
    (found,) = [f for f in findings if f.check == control.check and f.kind == control.kind][:1]
    assert control.at in found.ptx
    assert found.kernel == "k"


@pytest.mark.parametrize(
    ("intact", "kind"),
    [("fence.proxy.async;", "missing proxy fence"), (WAIT, "register of a wgmma under way")],
)
def test_what_is_missing_is_one_finding_with_a_count(
    checked_hopper: Driver, capfd: pytest.CaptureFixture[str], intact: str, kind: str
) -> None:
    """Many instructions meet one missing fence, or one missing wait."""
    kernel = Kernel()
    product = kernel.mma.text(SUMS, "%d2", "%d3", "", "%p")
    text = kernel.text().replace(product, "\n".join(12 * [product]))
    text = text.replace("st.global", "\nst.global")
    _, findings = kernel.run(checked_hopper, text.replace(intact, ""))
    (found,) = [f for f in findings if f.kind == kind]
    assert found.count == {"missing proxy fence": 24}.get(kind, len(SUMS))
    assert capfd.readouterr().err.count(kind) == 1


def test_the_checks_change_no_modelled_time(hopper: Driver) -> None:
    """Nor how many registers a thread is taken to have, and so how many blocks are resident."""
    kernel = Kernel()
    hopper.vgpu.set_option("counters", "on")
    found = []
    for check in ("none", "memcheck", "initcheck", "racecheck", "synccheck", "all"):
        hopper.vgpu.set_option("check", check)
        hopper.vgpu.clear_launches()
        kernel.run(hopper, kernel.text())
        (launch,) = hopper.vgpu.counters()
        del launch["host_cycles"]
        found.append(launch)
    assert all(launch == found[0] for launch in found)


def test_undefined_operands_make_undefined_sums(checked_hopper: Driver) -> None:
    kernel = Kernel()
    body = kernel.text().replace("setp.lt.u32 %p, %n, 12288;", "setp.lt.u32 %p, %n, 8192;")
    _, findings = kernel.run(checked_hopper, body)
    checked_hopper.vgpu.clear_findings()
    (finding,) = findings
    assert (finding.check, finding.kind) == ("initcheck", "uninitialised result")
    assert "wgmma.mma_async" in finding.ptx, "where they were first used, not where waited for"
    unused = "\n".join(line for line in body.splitlines() if "st.global" not in line)
    _, findings = kernel.run(checked_hopper, unused)
    assert findings == [], "B is undefined, but nothing became of it"


def test_a_wgmma_is_performed_when_it_is_waited_for(hopper: Driver) -> None:
    kernel = Kernel()
    # The sums are copied before the wait, and those copies are stored.
    early = "\n".join(f"mov.b32 %e{k}, %c{k};" for k in range(8)) + WAIT
    body = ".reg .b32 %e<8>;\n" + kernel.text().replace(WAIT, early)
    for k in range(8):
        body = body.replace(
            f"st.global.u32 [%d0+{4 * k}], %c{k};", f"st.global.u32 [%d0+{4 * k}], %e{k};"
        )
    late, _ = kernel.run(hopper, body)
    assert (late == 0).all()
    hopper.vgpu.set_option("copies", "eager")
    # The warp that comes last performs it for all: what the others have copied is still zero.
    eager, _ = kernel.run(hopper, body)
    wanted = kernel.wanted()
    right = [k for k in range(4) if (eager == wanted)[16 * k : 16 * k + 16].all()]
    assert len(right) == 1


FAULTS = [
    ("wgmma.mma", "@%q wgmma.mma", "wgmma was reached by a part of the warp's threads"),
    ("mov.u64 %d2, ", "mov.u64 %d2, 0x3fff; mov.u64 %d1, ", "A leads beyond the block's shared"),
    ("mov.u64 %d3, ", "mov.u64 %d3, 0x3fff; mov.u64 %d1, ", "B leads beyond the block's shared"),
    (
        "mov.u64 %d3, ",
        "mov.u64 %d3, 0x4000004000000007; mov.u64 %d1, ",
        "out of a row of its swizzle",
    ),
    ("setp.eq.u32 %p, 0, 0;", "setp.eq.u32 %p, %t, 0;", "different values of scale-d"),
    (
        "mov.u64 %d3, ",
        "and.b32 %x, %t, 1; shl.b32 %x, %x, 3; cvt.u64.u32 %d3, %x; add.u64 %d3, %d3, ",
        "lanes of a warp give wgmma different descriptors",
    ),
    (
        "mov.u64 %d3, ",
        "and.b32 %x, %t, 32; cvt.u64.u32 %d3, %x; add.u64 %d3, %d3, ",
        "warps of a warpgroup give one wgmma different descriptors",
    ),
    (
        FENCE,
        FENCE + " setp.ge.u32 %q, %t, 96; @%q exit;",
        "a warp of the warpgroup has ended without the wgmma that others wait for",
    ),
]


@pytest.mark.parametrize(("intact", "broken", "says"), FAULTS, ids=[f[2] for f in FAULTS])
def test_what_cannot_be_executed_is_a_fault(
    hopper: Driver, intact: str, broken: str, says: str
) -> None:
    kernel = Kernel()
    body = "setp.eq.u32 %q, %laneid, 3;\n" + kernel.text().replace(intact, broken)
    with pytest.raises(CudaError, match=says) as error:
        kernel.run(hopper, body)
    assert "'k'" in str(error.value)
    assert "PTX line" in str(error.value)


def test_a_block_without_a_whole_warpgroup_is_a_fault(hopper: Driver) -> None:
    kernel = Kernel()
    with refused(Code.LAUNCH_FAILED, "wgmma", "kernel 'k'"):
        kernel.run(hopper, kernel.text(), threads=96)


def test_a_warp_that_waits_elsewhere_is_a_deadlock(hopper: Driver) -> None:
    kernel = Kernel()
    body = kernel.text().replace(FENCE, FENCE + " setp.ge.u32 %q, %t, 96; @%q bar.sync 1, 64;")
    with refused(Code.LAUNCH_FAILED, "deadlock", "wgmma"):
        kernel.run(hopper, body)


# --- setmaxnreg

SHARES = """
    mov.u32 %t, %tid.x; setp.lt.u32 %p, %t, 128; @%p bra FIRST;
    setmaxnreg.inc.sync.aligned.u32 {inc}; bra END;
FIRST: setmaxnreg.dec.sync.aligned.u32 {dec};
END: ret;
"""


def run_shares(driver: Driver, dec: int, inc: int, limit: str = ".maxntid 256, 1, 1") -> None:
    body = SHARES.format(inc=inc, dec=dec)
    text = entry([], ".reg .b32 %t; .reg .pred %p;", body).replace("()\n", f"()\n{limit}\n", 1)
    driver.run(HEADER + text, [], block=(256, 1, 1))


def test_registers_move_between_warpgroups(hopper: Driver) -> None:
    limit = ".maxntid 256, 1, 1\n.maxnreg 128"
    run_shares(hopper, 24, 232, limit)
    with refused(Code.LAUNCH_FAILED, "setmaxnreg.inc", "112 registers", "80"):
        run_shares(hopper, 24, 240, limit)


def test_registers_are_handed_out_by_eights(hopper: Driver) -> None:
    """A thread that may have 255 has 256, and may ask for as many."""
    run_shares(hopper, 24, 256, ".reqntid 256, 1, 1\n.maxnreg 256")


def test_more_registers_than_there_are_and_wrong_directions_are_faults(hopper: Driver) -> None:
    limit = ".maxntid 256, 1, 1\n.maxnreg 128"
    with refused(Code.LAUNCH_FAILED, "setmaxnreg.dec", "kernel 'k'"):
        run_shares(hopper, 136, 128, limit)


def test_without_a_limit_setmaxnreg_has_no_effect(hopper: Driver) -> None:
    run_shares(hopper, 24, 256, "")


def held(products: int, left: int, mma: Wgmma = MMA) -> str:
    """`products` of eight sums each under way at once, in a line each, where setmaxnreg has left so
    many registers."""
    left_hand = braces(LEFT) if mma is FROM_REGISTERS else "%d2"
    registers = [[f"%h{8 * n + k}" for k in range(8)] for n in range(products)]
    texts = [mma.text(sums, left_hand, "%d3", "", "%p") for sums in registers]
    wgmmas = "\n".join(texts)
    change = "dec" if left < 128 else "inc"
    return f"""
        .reg .b32 %h<{8 * products}>;
        mov.u32 %x, s; mov.u64 %d2, 0; mov.u64 %d3, 0; setp.eq.u32 %p, 0, 0;
        setmaxnreg.{change}.sync.aligned.u32 {left};
        {FENCE}
        {wgmmas}
        {COMMIT} {WAIT} ret;"""


@pytest.mark.parametrize(
    ("products", "left", "mma", "needed"),
    [
        (3, 24, MMA, 0),
        (4, 24, MMA, 32),
        (4, 32, MMA, 0),
        (3, 24, FROM_REGISTERS, 28),
        (17, 128, MMA, 0),  # as it was launched: for ptxas to know
    ],
)
def test_registers_of_products_are_those_that_setmaxnreg_left(
    hopper: Driver, products: int, left: int, mma: Wgmma, needed: int
) -> None:
    hopper.vgpu.set_option("check", "synccheck")
    hopper.vgpu.clear_findings()
    text = entry([], REGISTERS, held(products, left, mma))
    hopper.run(HEADER + text.replace("\n{", "\n.maxnreg 128\n{", 1), [], block=(128, 1, 1))
    found = hopper.vgpu.findings()
    if not needed:
        assert not found
        return
    (finding,) = found
    assert finding.kind == "registers beyond setmaxnreg"
    assert (finding.kernel, finding.block, finding.thread) == ("k", (0, 0, 0), (0, 0, 0))
    assert f"%h{8 * products - 1}" in finding.ptx
    assert {str(needed), str(left)} <= set(re.findall(r"\d+", finding.message))


def test_registers_of_products_that_were_waited_for_are_free(hopper: Driver) -> None:
    hopper.vgpu.set_option("check", "synccheck")
    hopper.vgpu.clear_findings()
    four = held(4, 24)
    last = four.rindex("wgmma.mma_async")
    text = entry([], REGISTERS, f"{four[:last]}{COMMIT} {WAIT} {FENCE} {four[last:]}")
    hopper.run(HEADER + text.replace("\n{", "\n.maxnreg 128\n{", 1), [], block=(128, 1, 1))
    assert not hopper.vgpu.findings()


@pytest.mark.parametrize("count", [16, 100, 264])
def test_counts_that_setmaxnreg_does_not_know_are_refused(hopper: Driver, count: int) -> None:
    with refused(Code.INVALID_PTX, "setmaxnreg", "24", "256"):
        run_shares(hopper, count, 128)


def test_other_targets_do_not_have_wgmma(hopper: Driver) -> None:
    ptx = HEADER.replace("sm_90a", "sm_90") + entry([], "", "wgmma.fence.sync.aligned; ret;")
    with refused(Code.INVALID_PTX, "wgmma.fence", "sm_90a"):
        hopper.run(ptx, [])

"""What people write in inline assembly, and compilers do not; and where lanes meet again."""

from __future__ import annotations

import numpy as np

from benchmarks.harness.driver import Driver, entry


def test_a_blank_before_the_type(driver: Driver) -> None:
    out = driver.buffer(np.zeros(1, np.uint32))
    body = """
    ld.param.u64 %d, [p0]; mov.u32 %a, 0xff00ff00; mov.u32 %b, 0x0ff00ff0;
    xor  .b32 %a, %a, %b; st.global.u32 [%d], %a; ret;
    """
    driver.run(entry(["u64"], ".reg .b32 %a, %b; .reg .b64 %d;", body), [out])
    assert driver.read(out)[0] == 0xFF00FF00 ^ 0x0FF00FF0


def test_elements_of_a_vector_register(driver: Driver) -> None:
    out = driver.buffer(np.zeros(2, np.float32))
    body = """
    ld.param.u64 %d, [p0];
    { .reg .v2 .f32 pair; mov.f32 pair.x, 0f40000000; mov.f32 pair.y, 0f3f000000;
      st.global.f32 [%d], pair.x; st.global.f32 [%d+4], pair.y; }
    ret;
    """
    driver.run(entry(["u64"], ".reg .b64 %d;", body), [out])
    np.testing.assert_array_equal(driver.read(out), [2.0, 0.5])


def test_lanes_meet_before_a_barrier_although_a_path_traps(driver: Driver) -> None:
    # A switch whose default nobody takes: behind it the kernel has no way to its end but a trap.
    out = driver.buffer(np.zeros(64, np.uint32))
    body = """
    ld.param.u64 %d, [p0]; mov.u32 %t, %tid.x; and.b32 %c, %t, 1; mov.u32 %v, 7;
    setp.eq.u32 %p, %c, 0; @%p bra meet;
    setp.gt.u32 %q, %c, 1; @%q bra never;
    mov.u32 %v, 9;
meet:
    bar.sync 0;
    mad.wide.u32 %d, %t, 4, %d; st.global.u32 [%d], %v; ret;
never:
    trap;
    """
    registers = ".reg .b32 %t, %c, %v; .reg .b64 %d; .reg .pred %p, %q;"
    driver.run(entry(["u64"], registers, body), [out], block=(64, 1, 1))
    np.testing.assert_array_equal(driver.read(out), np.tile([7, 9], 32))

"""Instructions that the virtual GPU has not are refused by their names, and nothing is run."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.harness.driver import CudaError, Driver, entry

INVALID_PTX = 218
REGISTERS = """.reg .pred %p; .reg .b16 %h<8>; .reg .b32 %r<40>; .reg .f32 %f<8>; .reg .b64 %d<8>;
.shared .align 16 .b8 tile[1024];"""

# One of each family of vgpu/README.md's list of what is not there.
NOT_THERE = {
    "clusters": "barrier.cluster.arrive.aligned;",
    "shared memory of a cluster": "mapa.u64 %d1, %d0, 0;",
    "bulk copies": "cp.async.bulk.commit_group;",
    "copies by tensor maps": "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::"
    "complete_tx::bytes [%d1], [%d0, {%r0, %r1}], [%d2];",
    "warpgroups": "wgmma.fence.sync.aligned;",
    "registers of warpgroups": "setmaxnreg.inc.sync.aligned.u32 232;",
    "stores of clusters": "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%d1], "
    "%r0, [%d2];",
    "multicast": "multimem.red.relaxed.sys.global.add.u32 [%d0], %r0;",
    "tensor memory": "tcgen05.wait::ld.sync.aligned;",
    "textures": "tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%d0, {%r0}];",
    "surfaces": "suld.b.1d.b32.trap {%r0}, [%d0, {%r1}];",
    "stack allocation": "alloca.u64 %d1, %d0;",
    "long vectors": "ld.global.v8.b32 {%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%d0];",
    "video": "vadd.s32.s32.s32 %r0, %r1, %r2;",
}


@pytest.mark.parametrize("what", NOT_THERE)
def test_what_is_not_there_is_named(driver: Driver, what: str) -> None:
    instruction = NOT_THERE[what]
    body = f"ld.param.u64 %d0, [p0]; mov.u32 %r0, 1; st.global.u32 [%d0], %r0;\n{instruction}\nret;"
    out = driver.buffer(np.zeros(64, np.uint32))
    with pytest.raises(CudaError) as raised:
        driver.run(entry(["u64"], REGISTERS, body), [out])
    said = str(raised.value)
    name = instruction.split()[0].rstrip(";")
    family = ".".join(name.split(".")[:2]) if name.startswith(("mma", "cp.async")) else name
    assert family.split(".")[0] in said, said
    assert "PTX line" in said
    assert raised.value.code == INVALID_PTX
    assert not driver.read(out).any(), "nothing has run"

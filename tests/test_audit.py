"""The counts that the benchmark `audit` takes from the text of nvdisasm."""

from __future__ import annotations

from benchmarks.sass import SassFacts, sass_facts, together

# Two functions: one with a loop of three instructions within a longer loop, and one without a loop.
TEXT = """\
\t.section\t.text.boltgen_k_device,"ax",@progbits
.text.boltgen_k_device:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
        /*0010*/                   LDG.E.LTC128B.128 R4, desc[UR4][R2.64] ;
        /*0020*/                   LDG.E R8, desc[UR4][R2.64+0x10] ;
.L_x_2:
        /*0030*/                   HMMA.16816.F32 R12, R4, R8, R12 ;
        /*0040*/              @!P0 LDGSTS.E.BYPASS.LTC128B.128 [R61], desc[UR14][R8.64], P1 ;
        /*0050*/               @P1 BRA `(.L_x_2) ;
        /*0060*/                   STL [R1], R4 ;
        /*0070*/               @P2 BRA `(.L_x_1) ;
        /*0080*/               @P3 BRA `(.L_x_3) ;
        /*0090*/                   HGMMA.64x128x16.F32 R24, gdesc[UR8], R24 ;
.L_x_3:
        /*00a0*/                   UTMALDG.2D [UR4], [UR6], desc[UR8] ;
        /*00b0*/                   EXIT ;
.text.boltgen_l_device:
        /*0000*/                   LDG.E.U16 R4, desc[UR4][R2.64] ;
        /*0010*/                   EXIT ;
"""


def test_the_main_loop_is_the_shortest_with_the_most_matrix_instructions() -> None:
    assert sass_facts(TEXT) == {
        "boltgen_k_device": SassFacts(
            instructions=12, matrix=1, loop=3, loads=4, wide_loads=3, local=1
        ),
        "boltgen_l_device": SassFacts(
            instructions=2, matrix=0, loop=0, loads=1, wide_loads=0, local=0
        ),
    }


def test_the_kernels_of_a_unit_are_added_up() -> None:
    assert together(sass_facts(TEXT).values()) == SassFacts(
        instructions=14, matrix=1, loop=3, loads=5, wide_loads=3, local=1
    )

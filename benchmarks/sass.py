"""Arrow: nvdisasm's text of a kernel to counts: its main loop's instructions, and its loads.

The main loop is the shortest loop among the loops with the most matrix instructions. A loop lasts
from a label to a branch back to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields

_SECTION = re.compile(r"^\.text\.(\S+):", re.MULTILINE)
_LABEL = re.compile(r"^(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)(.*)")
_TARGET = re.compile(r"`\((\.L_x_\d+)\)")
# HMMA is mma.sync of floating point, HGMMA wgmma; I, Q, O and B stand for other number types.
_MATRIX = re.compile(r"[HIQOB]G?MMA\b")
_GLOBAL_LOADS = ("LDG", "LDGSTS")
# A copy of whole tiles by the tensor memory accelerator: wider than any vector.
_TILE_LOADS = ("UTMALDG", "UBLKCP")


@dataclass(frozen=True, slots=True, kw_only=True)
class SassFacts:
    """Counts of a kernel's SASS.

    `matrix` and `loop` are the matrix instructions and all instructions of the main loop; 0 without
    a matrix instruction in a loop. `loads` are the instructions that load from global memory, of
    which `wide_loads` load 16 bytes a thread or a tile. `local` counts accesses of local memory.
    """

    instructions: int
    matrix: int
    loop: int
    loads: int
    wide_loads: int
    local: int


def together(facts: Iterable[SassFacts]) -> SassFacts:
    """Add up the counts of a unit's kernels: a layout transform has an entry for each width."""
    each = [astuple(one) for one in facts]
    names = (field.name for field in fields(SassFacts))
    return SassFacts(**dict(zip(names, map(sum, zip(*each, strict=True)), strict=True)))


def sass_facts(text: str) -> dict[str, SassFacts]:
    """Count the instructions of each function in the output of `nvdisasm -c`, by name."""
    parts = _SECTION.split(text)[1:]
    return {name: _facts(body) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def _facts(body: str) -> SassFacts:
    codes: list[str] = []
    labels: dict[str, int] = {}
    back: list[tuple[int, int]] = []
    for line in body.splitlines():
        if label := _LABEL.match(line):
            labels[label[1]] = len(codes)
        elif found := _INSTRUCTION.match(line):
            target = _TARGET.search(found[2])
            if found[1].startswith("BRA") and target and target[1] in labels:
                back.append((labels[target[1]], len(codes) + 1))
            codes.append(found[1])
    matrix, loop = max(
        (
            (sum(_MATRIX.match(code) is not None for code in codes[begin:end]), begin - end)
            for begin, end in back
        ),
        default=(0, 0),
    )
    loads = [code for code in codes if code.split(".")[0] in (*_GLOBAL_LOADS, *_TILE_LOADS)]
    return SassFacts(
        instructions=len(codes),
        matrix=matrix,
        loop=-loop if matrix else 0,
        loads=len(loads),
        wide_loads=sum(
            code.split(".")[0] in _TILE_LOADS or "128" in code.split(".") for code in loads
        ),
        local=sum(code.split(".")[0] in ("LDL", "STL") for code in codes),
    )

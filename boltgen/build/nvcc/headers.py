"""Find the headers of boltgen that a source includes: its key covers these, and no more.

Nine tenths of a kernel's compilation are headers, most of which no kernel uses. Stand-ins for such
headers of CUTLASS, CUDA and the standard library are in `lean/`: `lean/kernels` for all kernels,
`lean/cutlass2` for kernels of CUTLASS's 2.x API too. A kernel that needs what a stand-in leaves out
does not compile.
"""

from __future__ import annotations

import re
from pathlib import Path

from boltgen.errors import ToolchainError
from boltgen.ir.key import digest

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*["<]([^">]+)[">]', re.MULTILINE)


def included(text: str, folder: Path) -> dict[str, str]:
    """Return the headers below `folder` that `text` includes, directly or not: contents by name.

    Conditional includes count, so a key may change needlessly, but never fails to change.

    Raises:
        ToolchainError: an included header of boltgen does not exist.
    """
    found: dict[str, str] = {}
    texts = [text]
    while texts:
        for name in _INCLUDE.findall(texts.pop()):
            path = folder / name
            if name in found:
                continue
            if path.is_file():
                found[name] = path.read_text(encoding="utf-8")
                texts.append(found[name])
            elif name.startswith("boltgen/"):
                raise ToolchainError(
                    f"the header {name} is not in {folder}: this installation of boltgen is "
                    f"incomplete; install it again"
                )
    return found


def included_digest(text: str, folder: Path) -> str:
    """Return a digest of the contents of `included(text, folder)`."""
    return digest(included(text, folder))[:16]


def lean_folders(text: str, folder: Path) -> tuple[Path, ...]:
    """Return the folders of stand-ins that the kernels in `text` compile with.

    They come before all other folders of headers.
    """
    lean = folder / "lean"
    texts = (text, *included(text, folder).values())
    uses_cute = any(name.startswith("cute/") for each in texts for name in _INCLUDE.findall(each))
    return (lean / "kernels",) if uses_cute else (lean / "cutlass2", lean / "kernels")


def kernel_headers_digest(text: str, folder: Path) -> str:
    """A hash of all of boltgen's headers that the kernels in `text` compile with."""
    stand_ins = {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        for each in lean_folders(text, folder)
        for path in sorted(each.rglob("*"))
        if path.is_file()
    }
    return digest(included(text, folder) | stand_ins)[:16]

"""Find boltgen's headers that a source includes; the source's key covers only these."""

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

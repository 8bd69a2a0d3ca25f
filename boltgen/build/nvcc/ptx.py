"""Arrow: from a compiled file to the content of a kernel: a digest of its PTX.

nvcc embeds PTX into objects and shared libraries, in the ELF section `.nv_fatbin`. Two compilations
have equal content if the kernel and everything that it refers to are equal, whatever else the
translation unit has. Comments and line numbers do not count, nor do names, which contain the unit's
name and the kernel's place in it.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from boltgen.build.cache import Cache
from boltgen.errors import KernelContentError
from boltgen.ir.key import digest

# Increase it if the same PTX gets another digest.
_VERSION = 1
_KIND, _FILE = "content", "content"

# ELF's header and section header, 64 bits, little-endian.
_ELF_MAGIC = b"\x7fELF\x02\x01"
_ELF_SECTIONS = struct.Struct("<40xQ10xHHH")
_ELF_SECTION = struct.Struct("<I20xQQ24x")
# The container's header and an entry's header. Source: nvcc's fatbinary.h; vgpu/core/fatbin.cpp.
_FATBIN_MAGIC = 0xBA55ED50
_FATBIN = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIHHIIIQ")
_ALIGNED = 8
_PTX = 1
_COMPRESSED = 0xF000

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NAME = re.compile(r"(?<![\w$.%])[A-Za-z_$][\w$]*")
_FUNCTION = re.compile(r"\.(?:entry|func)\s*(?:\([^)]*\)\s*)?([\w$]+)")
_VARIABLE = re.compile(r"^\.[^={]*?(?<![\w$.%])([A-Za-z_$][\w$]*)\s*(?:\[[^\]]*\]\s*)*(?:=|;)")
_ALIAS = re.compile(r"^\.alias\s+([\w$]+)")
_LABEL = re.compile(r"^([\w$]+):", re.MULTILINE)
_LOCAL = re.compile(
    r"^\{?\s*\.(?:param|local|shared)\b[^;,={(]*?(?<![\w$.%])([A-Za-z_$][\w$]*)"
    r"\s*(?:\[[^\]]*\])*\s*[;,]?$",
    re.MULTILINE,
)
_PREAMBLE = (".version", ".target", ".address_size")
_DROPPED = (".file ", ".loc ")


def stored_content(output: Path, symbol: str, cache: Cache) -> str:
    """Return `kernel_content` of an entry of the cache, which stores the result.

    Raises:
        KernelContentError: see `kernel_content`.
        CacheError: the cache cannot be written.
    """
    entry = cache.get_or_build(
        _KIND,
        digest(_KIND, _VERSION, output.parent.name, output.name, symbol),
        lambda folder: _write(folder / _FILE, kernel_content(output, symbol)),
        [_FILE],
    )
    return (entry.folder / _FILE).read_text(encoding="ascii")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="ascii")


def kernel_content(output: Path, symbol: str) -> str:
    """Return the SHA-256 of the PTX of kernel `symbol` in an object or a shared library.

    The names of the kernel's entries contain the symbol.

    Raises:
        KernelContentError: the file is no ELF file, or has no readable PTX of that kernel.
    """
    try:
        data = output.read_bytes()
    except OSError as error:
        raise KernelContentError(f"{output} cannot be read: {error.strerror}") from error
    try:
        found = [ptx for ptx in embedded_ptx(data) if symbol in ptx]
        texts = [normal_form(ptx, symbol) for ptx in found]
    except KernelContentError as error:
        raise KernelContentError(f"{output}: {error}") from error
    if not texts:
        raise KernelContentError(
            f"{output} holds no PTX of kernel {symbol}: nvcc has to embed it, uncompressed, and "
            "the names of a kernel's entries have to contain its symbol"
        )
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def embedded_ptx(data: bytes) -> Iterator[str]:
    """Yield the modules of PTX in an ELF file.

    Raises:
        KernelContentError: it is no ELF file, or its PTX is truncated or compressed.
    """
    try:
        section = _fatbins(data)
    except (struct.error, UnicodeDecodeError) as error:
        raise KernelContentError(f"its PTX cannot be read ({error})") from error
    yield from fatbin_ptx(section)


def fatbin_ptx(section: bytes) -> Iterator[str]:
    """Yield the modules of PTX in fat binaries that follow each other.

    Raises:
        KernelContentError: their PTX is truncated or compressed.
    """
    try:
        at = 0
        while at + _FATBIN.size <= len(section):
            magic, _, header_bytes, size = _FATBIN.unpack_from(section, at)
            if magic != _FATBIN_MAGIC:
                at += _ALIGNED  # skip the section's padding
                continue
            end = at + header_bytes + size
            at += header_bytes
            while at < end:
                kind, _, header_bytes, size, *_, flags = _ENTRY.unpack_from(section, at)
                payload = section[at + header_bytes : at + header_bytes + size]
                if kind == _PTX:
                    if flags & _COMPRESSED:
                        raise KernelContentError(
                            "its PTX is compressed: compile with --no-compress"
                        )
                    yield payload.rstrip(b"\0").decode()
                at += header_bytes + size
            at = -(-end // _ALIGNED) * _ALIGNED
    except (struct.error, UnicodeDecodeError) as error:
        raise KernelContentError(f"its PTX cannot be read ({error})") from error


def _fatbins(data: bytes) -> bytes:
    """Return the ELF section with device code."""
    if not data.startswith(_ELF_MAGIC):
        raise KernelContentError("no object file of this machine")
    table, entry_bytes, count, names = _ELF_SECTIONS.unpack_from(data, 0)
    places = [_ELF_SECTION.unpack_from(data, table + entry_bytes * i) for i in range(count)]
    _, names_at, names_bytes = places[names]
    texts = data[names_at : names_at + names_bytes]
    for name, begin, size in places:
        if texts[name:].partition(b"\0")[0] == b".nv_fatbin":
            return data[begin : begin + size]
    raise KernelContentError("it has no section .nv_fatbin")


def normal_form(ptx: str, symbol: str) -> str:
    """Return kernel `symbol`'s entries in a module of PTX and everything they refer to, renamed.

    Raises:
        KernelContentError: no entry has the symbol, or a declaration has an unknown form.
    """
    preamble, items = _declarations(ptx)
    order = [name for name in items if symbol in name and ".entry" in items[name]]
    if not order:
        raise KernelContentError(f"its PTX has no entry of kernel {symbol}")
    mentioned: dict[str, list[str]] = {}
    for name in order:  # the list grows in the loop
        mentioned[name] = _NAME.findall(items[name])
        order += [found for found in dict.fromkeys(mentioned[name]) if _is_new(found, items, order)]
    names = {name: _global_name(name, items[name], place) for place, name in enumerate(order)}
    return "\n".join(
        [*preamble, *(_renamed(items[name], mentioned[name], names) for name in order)]
    )


def _is_new(name: str, items: dict[str, str], order: list[str]) -> bool:
    return name in items and name not in order


def _global_name(name: str, item: str, place: int) -> str:
    """Return a declaration's name by its place; an external function keeps its own name."""
    return name if ".extern" in item and ".shared" not in item else f"$g{place}"


def _declarations(ptx: str) -> tuple[list[str], dict[str, str]]:
    """Return a module's preamble, and its declarations by name in their order."""
    preamble: list[str] = []
    items: dict[str, str] = {}
    open_lines: list[str] = []
    depth = 0
    for raw in _COMMENT.sub("", ptx).splitlines():
        line = " ".join(raw.split())
        if not line or line.startswith(_DROPPED):
            continue
        if not open_lines and line.startswith(_PREAMBLE):
            preamble.append(line)
            continue
        open_lines.append(line)
        depth += line.count("{") - line.count("}")
        if depth == 0 and line.endswith((";", "}")):
            _declare("\n".join(open_lines), items)
            open_lines = []
    if open_lines:
        raise KernelContentError(f"its PTX ends within {open_lines[0]!r}")
    return preamble, items


def _declare(item: str, items: dict[str, str]) -> None:
    if item.startswith((".section", "@@")):
        return  # for debuggers only
    found = _FUNCTION.search(item) or _ALIAS.match(item) or _VARIABLE.match(item)
    if not found:
        raise KernelContentError(f"its PTX has a declaration of unknown form: {item[:80]!r}")
    name = found[1]
    if name in items and item.endswith(";") and items[name].endswith("}"):
        return  # a prototype of a function that is defined
    items[name] = item


def _renamed(item: str, mentioned: list[str], names: dict[str, str]) -> str:
    """Rename a declaration's own names by their place, and other names by `names`."""
    uses = Counter(mentioned)
    labels = dict.fromkeys(_LABEL.findall(item))
    local = {name: "" for name in labels if uses[name] == 1}
    numbered = [*_LOCAL.findall(item), *(name for name in labels if name not in local)]
    local |= {name: f"$l{place}" for place, name in enumerate(dict.fromkeys(numbered))}
    known = names | local
    text = _NAME.sub(lambda found: known.get(found[0], found[0]), item)
    return "\n".join(line for line in text.splitlines() if line != ":")

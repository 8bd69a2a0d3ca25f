"""The structs of kernels' C interface, read from the header, and their instances.

`templates/include/boltgen/abi.h` alone defines their layout.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from boltgen.errors import BoltgenError
from boltgen.paths import resource_dir

_TYPES: dict[str, Any] = {
    "int32_t": ctypes.c_int32,
    "int64_t": ctypes.c_int64,
    "size_t": ctypes.c_size_t,
    "char": ctypes.c_char,
    "void*": ctypes.c_void_p,
    "void const*": ctypes.c_void_p,
}
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_CONSTANT = re.compile(r"#define (BOLTGEN_\w+) (\d+)")
_STRUCT = re.compile(r"typedef struct (\w+) \{(.*?)\} \1;", re.DOTALL)
_FIELD = re.compile(r"([\w ]+?\*?) (\w+)(?:\[(\w+)\])?;")
_PLACE = re.compile(r"(\w+)\[(\d+)\]")


@cache
def structs(header: Path | None = None) -> Mapping[str, type[ctypes.Structure]]:
    """Return the structs of a header by name, in its order; by default of `abi.h`.

    Raises:
        BoltgenError: a field has an unknown type.
    """
    path = header or resource_dir("templates") / "include" / "boltgen" / "abi.h"
    text = _COMMENT.sub("", path.read_text(encoding="utf-8"))
    constants = {name: int(value) for name, value in _CONSTANT.findall(text)}
    found: dict[str, type[ctypes.Structure]] = {}
    for name, body in _STRUCT.findall(text):
        fields = []
        for kind, field, count in _FIELD.findall(body):
            known = _TYPES.get(kind.strip()) or found.get(kind.strip())
            if known is None:
                raise BoltgenError(f"{name}.{field} is a {kind.strip()}, which is unknown")
            length = constants.get(count) or (int(count) if count else 0)
            fields.append((field, known * length if length else known))
        found[name] = type(name, (ctypes.Structure,), {"_fields_": fields})
    return found


def arguments(struct: str, values: Mapping[str, int]) -> ctypes.Structure:
    """Return a struct with these values for fields such as "m" or "layers[1].operands[0].ld".

    Raises:
        BoltgenError: the header has no such struct or field.
    """
    if struct not in structs():
        raise BoltgenError(f"abi.h has no struct {struct!r}; it has {', '.join(structs())}")
    made = structs()[struct]()
    for path, value in values.items():
        target: Any = made
        *parents, last = path.split(".")
        for name in parents:
            place = _PLACE.fullmatch(name)
            target = getattr(target, place[1])[int(place[2])] if place else getattr(target, name)
        if not hasattr(target, last):
            raise BoltgenError(f"{struct} of abi.h has no field {path!r}")
        setattr(target, last, value)
    return made

"""Writes the names of all functions of CUDA's headers, for the virtual GPU's libraries.

    python vgpu/declared_names.py [--check] [INCLUDE]

INCLUDE is the folder of cuda.h and cuda_runtime_api.h; without it, the one of the wheel that is
installed. `cudart/names.h` and `driver/names.h` get a line for each function:

    MISSING(name)                                  returns "not supported" where nothing defines it
    PER_THREAD(name_ptsz, name, (types), (values)) calls `name` with the thread's default stream
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# Macros that show further versions of the functions.
_VERSIONS = ("", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM", "-D__CUDA_API_VERSION_INTERNAL")
# Headers that include others which a machine without graphics has not: read as they stand.
_GRAPHICS = {
    "cudart": ("cuda_gl_interop.h", "cuda_egl_interop.h", "cuda_vdpau_interop.h"),
    "driver": ("cudaGL.h", "cudaEGL.h", "cudaVDPAU.h"),
}
_MAIN = {"cudart": "cuda_runtime_api.h", "driver": "cuda.h"}
_RESULT = {"cudart": "cudaError_t", "driver": "CUresult"}
_STREAMS = ("cudaStream_t", "CUstream")
_NUMBERS = {
    "int": "int",
    "unsigned": "unsigned",
    "unsigned int": "unsigned",
    "unsigned char": "unsigned char",
    "unsigned short": "unsigned short",
    "unsigned long long": "unsigned long long",
    "cuuint32_t": "unsigned",
    "cuuint64_t": "unsigned long long",
    "CUdeviceptr": "unsigned long long",
    "size_t": "size_t",
    "float": "float",
    "dim3": "vgpu_dim3",
}


@dataclass(frozen=True)
class Types:
    """What a header calls its pointers and its enumerations."""

    pointers: frozenset[str]
    enums: frozenset[str]

    def plain(self, parameter: str) -> str | None:
        """The type of a declared parameter without CUDA's names; None where it is a structure."""
        text = parameter.split("=", maxsplit=1)[0].strip()
        if "*" in text or "[" in text:
            return "void*"
        words = [word for word in text.split() if word not in ("const", "struct", "enum")]
        for candidate in (" ".join(words), " ".join(words[:-1])):
            if candidate in _NUMBERS:
                return _NUMBERS[candidate]
            if candidate in self.pointers:
                return "void*"
            if candidate in self.enums:
                return "int"
        return None


def include_folder() -> Path:
    """Where the headers of the installed wheel are."""
    spec = importlib.util.find_spec("nvidia.cu13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("no wheel with CUDA 13's headers is installed: name their folder")
    return Path(next(iter(spec.submodule_search_locations))) / "include"


def _preprocessed(include: Path, header: str, flag: str) -> str:
    command = ["g++", "-E", "-P", f"-I{include}", *filter(None, [flag]), "-x", "c++", "-"]
    done = subprocess.run(
        command, input=f"#include <{header}>\n", text=True, capture_output=True, check=True
    )
    return done.stdout


def _declarations(text: str, result: str) -> dict[str, str]:
    found = re.findall(
        rf"\b{result}\s+(?:CUDAAPI\s+|CUDARTAPI\s+)?(\w+)\s*\(([^;{{}}]*)\)\s*;", text
    )
    return {name: " ".join(parameters.split()) for name, parameters in found}


def _types(text: str) -> Types:
    pointers = re.findall(r"typedef\s+(?:const\s+)?(?:struct\s+)?\w+\s*\*\s*(\w+)\s*;", text)
    pointers += re.findall(r"typedef[^;{}]*\(\s*\*\s*(\w+)\s*\)\s*\(", text)
    enums = re.findall(r"typedef\s+enum\s+(?:\w+\s*)?\{[^}]*\}\s*(\w+)\s*;", text)
    enums += re.findall(r"\benum\s+(\w+)", text)
    aliases = dict(re.findall(r"typedef\s+(?:enum\s+)?(\w+)\s+(\w+)\s*;", text))
    enums += [new for old, new in aliases.items() if old in enums]
    numbers = [new for old, new in aliases.items() if old in ("int", "CUdevice_v1")]
    return Types(frozenset(pointers), frozenset(enums + numbers))


def declared(include: Path, library: str) -> tuple[dict[str, str], Types]:
    """Functions of the library ("cudart" or "driver") that return a code, and their parameters."""
    header, result = _MAIN[library], _RESULT[library]
    texts = [_preprocessed(include, header, flag) for flag in _VERSIONS]
    functions: dict[str, str] = {}
    for text in reversed(texts):  # the versions that programs get by default come last, and stay
        functions.update(_declarations(text, result))
    for name in _GRAPHICS[library]:
        text = (include / name).read_text(encoding="utf-8", errors="replace")
        for function in _declarations(re.sub(r"__dv\(\w*\)", "", text), result):
            functions.setdefault(function, "")
    return dict(sorted(functions.items())), _types(" ".join(texts))


def _line(name: str, functions: dict[str, str], types: Types) -> str:
    base = re.sub(r"_pt[ds][sz]$", "", name)
    if base == name or base not in functions:
        return f"MISSING({name})"
    # No parameter's type has a comma: the functions among them have names.
    parameters = [p for p in functions[name].split(",") if p.strip() not in ("", "void")]
    plain = [types.plain(parameter) for parameter in parameters]
    if None in plain:
        return f"MISSING({name})"
    typed = ", ".join(f"{kind} a{k}" for k, kind in enumerate(plain))
    values = ", ".join(
        f"own(a{k})" if parameter.split()[0] in _STREAMS and "*" not in parameter else f"a{k}"
        for k, parameter in enumerate(parameters)
    )
    return f"PER_THREAD({name}, {base}, ({typed}), ({values}))"


def table(include: Path, library: str) -> str:
    """The text of `names.h`."""
    functions, types = declared(include, library)
    lines = [_line(name, functions, types) for name in functions]
    return (
        f"// What {_MAIN[library]} of CUDA 13.0 declares, written by declared_names.py.\n"
        "// clang-format off\n" + "\n".join(lines) + "\n"
    )


def main() -> int:
    """Write both tables, or compare them with what the headers say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 where one differs")
    parser.add_argument("include", nargs="?", type=Path)
    given = parser.parse_args()
    include = given.include or include_folder()
    for library in _MAIN:
        path = Path(__file__).parent / library / "names.h"
        text = table(include, library)
        if not given.check:
            path.write_text(text, encoding="utf-8")
        elif path.read_text(encoding="utf-8") != text:
            print(f"{path} is not what the headers in {include} say: run {sys.argv[0]}")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

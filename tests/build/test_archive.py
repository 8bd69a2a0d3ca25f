"""Archives: a linker that is handed one twice takes its member once."""

from __future__ import annotations

import subprocess
from pathlib import Path

from boltgen.build.archive import archive
from boltgen.build.cache import Cache
from boltgen.build.compile import compile_unit
from boltgen.build.toolchain import find_toolchain
from boltgen.build.unit import CompiledObject, adapter_unit
from boltgen.settings import settings_from


def compiled(name: str, text: str, cache: Cache) -> CompiledObject:
    outcome = compile_unit(adapter_unit(name, text, find_toolchain(settings_from())), cache)
    assert isinstance(outcome, CompiledObject)
    return outcome


def test_a_shared_kernel_is_linked_once(tmp_path: Path) -> None:
    cache, tools = Cache(tmp_path / "cache"), find_toolchain(settings_from())
    kernel = archive(compiled("k", 'extern "C" int kernel() { return 7; }', cache), cache, tools)
    callers = [
        compiled(
            name,
            f'extern "C" int kernel();\nextern "C" __attribute__((visibility("default"))) int '
            f"{name}() {{ return kernel(); }}",
            cache,
        ).path
        for name in ("f", "g")
    ]
    # Under the name of an object, as TVM hands on static libraries.
    copies = [tmp_path / "lib1.o", tmp_path / "lib3.o"]
    for copy in copies:
        copy.write_bytes(kernel.read_bytes())
    library = tmp_path / "library.so"
    files = [callers[0], copies[0], callers[1], copies[1]]
    subprocess.run(
        [
            str(tools.cxx.path),
            "-shared",
            "-Wl,--no-undefined",
            "-o",
            str(library),
            *map(str, files),
        ],
        check=True,
    )
    symbols = subprocess.run(
        ["nm", str(library)], capture_output=True, text=True, check=True
    ).stdout.split()
    assert symbols.count("kernel") == 1
    assert archive(compiled("k", 'extern "C" int kernel() { return 7; }', cache), cache, tools) == (
        kernel
    )

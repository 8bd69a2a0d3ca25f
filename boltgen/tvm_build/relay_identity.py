"""The identity of a TVM with Relay, which is usually built by its user and not a package."""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path

from boltgen.frontend.relay.versions import installed_tvm


def relay_identity() -> str | None:
    """Return a text that changes with the installed TVM's Python code or library; else None.

    None means that a part is missing. The text covers each file's name, size and modification time.
    The files are not read, which would take as long as the cache hit saves.
    """
    tvm = installed_tvm()
    if tvm is None:
        return None
    libraries = _libraries(tvm.folder)
    if not libraries:
        return None
    state = hashlib.sha256(tvm.version.encode())
    for path in (*sorted(tvm.folder.rglob("*.py")), *libraries):
        info = path.stat()
        state.update(f"\0{path} {info.st_size} {info.st_mtime_ns}".encode())
    return state.hexdigest()


def _libraries(folder: Path) -> list[Path]:
    """Return the libraries that TVM would load by its own rules.

    TVM's file with the rules can be executed without the rest of TVM.
    """
    spec = importlib.util.spec_from_file_location(
        "boltgen_tvm_libinfo", folder / "_ffi" / "libinfo.py"
    )
    if spec is None or spec.loader is None:
        return []
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        return [Path(path) for path in module.find_lib_path() or ()]
    except Exception:  # another version has other rules: then there is no key
        return []

"""The folders of boltgen's resources: in the installed package, else beside it in a checkout."""

from __future__ import annotations

from pathlib import Path

from boltgen.errors import BoltgenError

_PACKAGE = Path(__file__).resolve().parent


def resource_dir(name: str) -> Path:
    """Return the folder `name` ("templates", "vgpu", "profiler").

    Raises:
        BoltgenError: neither the installed package nor a checkout has it.
    """
    candidates = (_PACKAGE / "_resources" / name, _PACKAGE.parent / name)
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    tried = " nor ".join(str(candidate) for candidate in candidates)
    raise BoltgenError(
        f"boltgen's resource folder '{name}' is missing: neither {tried} exists; "
        "the installation is incomplete, reinstall boltgen"
    )


def prebuilt_dir(name: str) -> Path | None:
    """Return the wheel's folder of prebuilt libraries of the resource `name`, or None."""
    folder = _PACKAGE / "_resources" / f"{name}_prebuilt"
    return folder if folder.is_dir() else None


def shipped_records() -> tuple[Path, ...]:
    """Return the databases of measurements that came with boltgen: `records/*.sqlite` in the
    package.
    """
    return tuple(sorted((_PACKAGE / "records").glob("*.sqlite")))

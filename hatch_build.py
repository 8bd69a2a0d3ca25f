"""Tags a wheel with its platform, and adds the virtual GPU that BOLTGEN_PREBUILT names."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_PREBUILT = "BOLTGEN_PREBUILT"


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """The hook that pyproject.toml asks for."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Refuse other platforms; add what was built before (`make wheel`)."""
        if sys.platform != "linux" or platform.machine() != "x86_64":
            sys.exit(
                f"boltgen runs on Linux on x86-64 only, and this is {sys.platform} on "
                f"{platform.machine()}"
            )
        if version == "editable":
            return
        build_data["pure_python"] = False
        build_data["tag"] = "py3-none-linux_x86_64"
        if folder := os.environ.get(_PREBUILT):
            libraries = Path(folder)
            if not (libraries / "libvgpu.so").is_file():
                sys.exit(f"{_PREBUILT}={folder} holds no virtual GPU: `make wheel` builds one")
            build_data["force_include"][str(libraries.absolute())] = (
                "boltgen/_resources/vgpu_prebuilt"
            )

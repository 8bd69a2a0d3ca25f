"""These tests run in the environment with KServe; see tests/test_serving_suite.py."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

if importlib.util.find_spec("kserve") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    import boltgen
    from tests.serving.models import MODELS, save

    @pytest.fixture(scope="session")
    def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A folder of compiled models, one of them in two versions."""
        boltgen.activate("vgpu")
        folder = tmp_path_factory.mktemp("compiled")
        for name, model in MODELS.items():
            artifact = boltgen.compile(
                save(folder / f"{name}.onnx", model),
                arch="sm_80",
                shapes=dict(model.shapes),
                io=model.io,
            )
            artifact.save(folder / name / "1" if name == "rows" else folder / name)
            if name == "rows":
                artifact.save(folder / name / "2")
        return folder

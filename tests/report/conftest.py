"""The model that reports are about."""

from __future__ import annotations

import pytest

import boltgen
from boltgen.running.artifact import Artifact
from models.digits import MODEL_PATH


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("digits") / "digits.boltgen"
    boltgen.compile(MODEL_PATH, arch="sm_80").save(folder)
    return boltgen.load(folder)

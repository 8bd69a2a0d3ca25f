"""What the environment may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from boltgen.errors import BoltgenError
from boltgen.settings import settings_from


def test_defaults_need_no_variables() -> None:
    settings = settings_from({"HOME": "/home/me"})
    assert settings.cache_dir.name == settings.data_dir.name == "boltgen"
    assert settings.cache_dir != settings.data_dir
    assert settings.jobs >= 1
    assert settings.cuda_home is None
    assert settings.cxx == "g++"


def test_every_variable_is_read() -> None:
    settings = settings_from(
        {
            "BOLTGEN_CACHE_DIR": "/c",
            "BOLTGEN_DATA_DIR": "/d",
            "BOLTGEN_JOBS": "3",
            "CUDA_PATH": "/cuda",
            "CXX": "clang++",
            "PATH": "/b",
        }
    )
    assert (settings.cache_dir, settings.data_dir) == (Path("/c"), Path("/d"))
    assert settings.jobs == 3
    assert settings.cuda_home == Path("/cuda")
    assert (settings.cxx, settings.search_path) == ("clang++", "/b")


@pytest.mark.parametrize("jobs", ["0", "-1", "many", "1.5"])
def test_a_number_of_jobs_that_is_none(jobs: str) -> None:
    with pytest.raises(BoltgenError, match=rf"BOLTGEN_JOBS='{jobs}' is not a number of jobs"):
        settings_from({"BOLTGEN_JOBS": jobs})


def test_compilers_do_not_see_what_would_change_their_output() -> None:
    given = {"NVCC_APPEND_FLAGS": "-G", "CPATH": "/x", "HOME": "/h", "LC_ALL": "de_DE"}
    assert dict(settings_from(given).compiler_environment) == {"HOME": "/h", "LC_ALL": "C"}

"""What the environment may say."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from boltgen.codegen.nvcc import DeviceCode
from boltgen.errors import BoltgenError
from boltgen.settings import DEVICE_CODES, forget_odd_terminal_sizes, settings_from


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


def test_the_machine_code_of_kernels() -> None:
    assert settings_from({"HOME": "/h"}).device_code == "sass+ptx"
    assert settings_from({"HOME": "/h", "BOLTGEN_DEVICE_CODE": "ptx"}).device_code == "ptx"
    assert {each.value for each in DeviceCode} == set(DEVICE_CODES)


def test_machine_code_of_no_kind() -> None:
    with pytest.raises(BoltgenError, match=r"='cubin' is no kind of .* give sass\+ptx or ptx"):
        settings_from({"HOME": "/h", "BOLTGEN_DEVICE_CODE": "cubin"})


def test_compilers_do_not_see_what_would_change_their_output() -> None:
    given = {"NVCC_APPEND_FLAGS": "-G", "CPATH": "/x", "HOME": "/h", "LC_ALL": "de_DE"}
    assert dict(settings_from(given).compiler_environment) == {"HOME": "/h", "LC_ALL": "C"}


@pytest.mark.parametrize("jobs", ["\u00b2", "9" * 5000, "4097", "\x1b[31m"])
def test_a_number_of_jobs_that_python_stumbles_over(jobs: str) -> None:
    with pytest.raises(BoltgenError, match="is no whole number in 1 to 4096") as caught:
        settings_from({"BOLTGEN_JOBS": jobs})
    assert len(str(caught.value)) < 250
    assert "\x1b" not in str(caught.value)


def test_a_folder_without_a_meaning_is_named_with_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BoltgenError, match="BOLTGEN_DATA_DIR='~nobody-of-that-name/x' names no"):
        settings_from({"BOLTGEN_DATA_DIR": "~nobody-of-that-name/x"})
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    assert settings_from({"BOLTGEN_CACHE_DIR": "c"}).cache_dir == tmp_path / "gone" / "c"
    (tmp_path / "gone").rmdir()
    with pytest.raises(BoltgenError, match="BOLTGEN_CACHE_DIR='c' names no folder"):
        settings_from({"BOLTGEN_CACHE_DIR": "c"})


def test_without_a_home_the_variables_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless(*_: object) -> str:
        raise RuntimeError("could not determine the home directory")

    monkeypatch.setattr("platformdirs.user_data_dir", homeless)
    with pytest.raises(BoltgenError, match=r"no default folder .*set BOLTGEN_DATA_DIR to an abs"):
        settings_from({"BOLTGEN_CACHE_DIR": "/c"})
    assert settings_from({"BOLTGEN_CACHE_DIR": "/c", "BOLTGEN_DATA_DIR": "/d"}).data_dir


def test_sizes_of_no_terminal_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "\u00b2")
    monkeypatch.setenv("LINES", "40")
    forget_odd_terminal_sizes()
    assert "COLUMNS" not in os.environ
    assert os.environ["LINES"] == "40"


@pytest.mark.parametrize(
    ("given", "protocol"),
    [
        ({}, None),
        ({"ENDPOINT": "http://c"}, "http/protobuf"),
        ({"TRACES_ENDPOINT": "http://c", "PROTOCOL": "grpc"}, "grpc"),
        ({"ENDPOINT": "http://c", "PROTOCOL": "grpc", "TRACES_PROTOCOL": "http/json"}, "http/json"),
        ({"PROTOCOL": "grpc"}, None),
    ],
)
def test_traces_are_sent_where_opentelemetrys_variables_say(
    given: dict[str, str], protocol: str | None
) -> None:
    env = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in given.items()}
    assert settings_from({"HOME": "/home/me", **env}).trace_protocol == protocol
    assert settings_from({"HOME": "/h", **env, "OTEL_SDK_DISABLED": "true"}).trace_protocol is None


def test_keys_that_are_trusted_are_named_with_colons() -> None:
    settings = settings_from({"HOME": "/home/me", "BOLTGEN_TRUSTED_KEYS": "/a.pub:b.pub:"})
    assert settings.trusted_keys == (Path("/a.pub"), Path("b.pub"))

"""Arrays in .npz files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from boltgen.errors import InputError
from boltgen.ir.dtypes import DType
from boltgen.running.arrays import read_arrays, write_arrays


def test_arrays_come_back_whatever_their_names(tmp_path: Path) -> None:
    arrays = {
        "x": np.arange(6, dtype=np.float16).reshape(2, 3),
        "file": np.array(3),
        "a'b\"c;\n\u2603": np.ones((1,), np.float32),
    }
    write_arrays(tmp_path / "x.npz", arrays)
    found = read_arrays(tmp_path / "x.npz")
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_bf16_comes_back_though_numpys_format_has_no_name_for_it(tmp_path: Path) -> None:
    array = np.linspace(-3, 3, 12).astype(DType.BF16.numpy).reshape(3, 4)
    for write in (write_arrays, lambda path, arrays: np.savez(path, **arrays)):
        write(tmp_path / "x.npz", {"x": array})
        (found,) = read_arrays(tmp_path / "x.npz").values()
        assert found.dtype == array.dtype
        np.testing.assert_array_equal(found, array)


def test_files_of_numpys_own_are_read(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "x.npz", x=np.ones(3))
    np.testing.assert_array_equal(read_arrays(tmp_path / "x.npz")["x"], np.ones(3))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.npz cannot be read .*No such file.*numpy\.savez"):
        read_arrays(tmp_path / "x.npz")


@pytest.mark.parametrize("contents", [b"", b"text", b"PK\x03\x04 torn"])
def test_a_file_that_is_no_archive(tmp_path: Path, contents: bytes) -> None:
    (tmp_path / "x.npz").write_bytes(contents)
    with pytest.raises(InputError, match=r"cannot be read as an \.npz file"):
        read_arrays(tmp_path / "x.npz")


def test_one_array_without_a_name(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.ones(3))
    with pytest.raises(InputError, match="holds one array without a name"):
        read_arrays(tmp_path / "x.npy")


def test_pickles_are_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.array([{}], dtype=object))
    with pytest.raises(InputError, match="allow_pickle=False"):
        read_arrays(tmp_path / "x.npz")


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        write_arrays(tmp_path / "absent" / "y.npz", {"y": np.ones(1)})

from __future__ import annotations

import pytest

from boltgen.build.nvcc.headers import (
    included,
    included_digest,
    kernel_headers_digest,
    lean_folders,
)
from boltgen.errors import ToolchainError


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "boltgen").mkdir()
    (tmp_path / "boltgen/a.h").write_text('#pragma once\n#include "boltgen/b.h"\n')
    (tmp_path / "boltgen/b.h").write_text("#include <vector>\n #  include <boltgen/a.h>\n")
    (tmp_path / "boltgen/other.h").write_text("int other;\n")
    return tmp_path


def test_headers_are_found_through_headers_and_cycles_end(folder):
    found = included('#include "boltgen/a.h"\n#include <cutlass/cutlass.h>\n', folder)
    assert sorted(found) == ["boltgen/a.h", "boltgen/b.h"]


def test_an_edit_changes_the_sources_that_include_it_and_no_others(folder):
    uses, does_not = '#include "boltgen/a.h"\n', '#include "boltgen/other.h"\n'
    before = included_digest(uses, folder), included_digest(does_not, folder)
    (folder / "boltgen/b.h").write_text("int changed;\n")
    assert included_digest(uses, folder) != before[0]
    assert included_digest(does_not, folder) == before[1]


def test_a_missing_header_of_boltgens_is_an_error_that_names_it(folder):
    with pytest.raises(ToolchainError, match=r"boltgen/none\.h is not in .*install it again"):
        included('#include "boltgen/none.h"\n', folder)


def test_kernels_of_cute_keep_its_headers(folder):
    (folder / "boltgen/b.h").write_text("#include <cute/tensor.hpp>\n")
    with_cute, without = '#include "boltgen/a.h"\n', '#include "boltgen/other.h"\n'
    assert lean_folders(with_cute, folder) == (folder / "lean/kernels",)
    assert lean_folders(without, folder) == (folder / "lean/cutlass2", folder / "lean/kernels")


def test_an_edit_of_a_stand_in_changes_the_kernels_that_compile_with_it(folder):
    stand_in = folder / "lean/cutlass2/cute/layout.hpp"
    stand_in.parent.mkdir(parents=True)
    (folder / "boltgen/b.h").write_text("#include <cute/tensor.hpp>\n")
    with_cute, without = '#include "boltgen/a.h"\n', '#include "boltgen/other.h"\n'
    before = kernel_headers_digest(with_cute, folder), kernel_headers_digest(without, folder)
    stand_in.write_text("#pragma once\n")
    assert kernel_headers_digest(with_cute, folder) == before[0]
    assert kernel_headers_digest(without, folder) != before[1]

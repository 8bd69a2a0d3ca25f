from __future__ import annotations

import pytest

from boltgen.build.nvcc.headers import included, included_digest
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

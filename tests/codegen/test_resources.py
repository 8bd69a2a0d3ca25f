from __future__ import annotations

import pytest

from boltgen.errors import BoltgenError
from boltgen.paths import resource_dir


def test_templates_are_found() -> None:
    assert (resource_dir("templates") / "include/boltgen/abi.h").is_file()


def test_a_missing_folder_is_named_with_a_remedy() -> None:
    with pytest.raises(BoltgenError, match=r"'nothing' is missing.*reinstall boltgen"):
        resource_dir("nothing")

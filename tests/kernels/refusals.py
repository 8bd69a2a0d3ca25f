"""What tests of refused arguments share: changes of argument structs, and what is then said."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.harness.kernel_launch import KernelError, KernelLibrary
from boltgen.families.source import kernel_symbol
from boltgen.ir.kernel import KernelSpec

INVALID, MISALIGNED, WORKSPACE = 1, 2, 3
ADDRESS = 0x7F0000001000  # never dereferenced

Change = Callable[[Any], None]


def setting(**values: Any) -> Change:
    """Sets fields of a struct."""

    def change(args: Any) -> None:
        for name, value in values.items():
            setattr(args, name, value)

    return change


def assert_refused(
    library: KernelLibrary, spec: KernelSpec, args: Any, code: int, message: str
) -> None:
    """The entry of `spec` refuses `args` with that code, and says so in words like `message`."""
    with pytest.raises(KernelError) as caught:
        library.launch(kernel_symbol(spec), args)
    assert re.search(message, str(caught.value)), str(caught.value)
    assert caught.value.code == code

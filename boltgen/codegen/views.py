"""The views of templates: frozen dataclasses whose fields are the template's variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol


class View(Protocol):
    """A frozen dataclass whose fields are the variables of the template `TEMPLATE`.

    `TEMPLATE` is a file name in `templates`, or the text of a template for a family outside
    boltgen.
    """

    TEMPLATE: ClassVar[str]
    __dataclass_fields__: ClassVar[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitView:
    """A `.cu` file of one or more kernels.

    `banner` has comment lines, `kernels` has rendered kernel templates.
    """

    TEMPLATE: ClassVar[str] = "unit.cu.j2"

    banner: tuple[str, ...]
    headers: tuple[str, ...]
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDeclaration:
    """A kernel's C entry, as an adapter declares it."""

    symbol: str
    args_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentField:
    """One assignment to a kernel's argument struct."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterTable:
    """The rows by which a call chooses its kernel, smaller sizes first.

    A row has the greatest value of each of `symbols`, the kernel, and the kernel's own `fields`.
    `is_beyond` is the C++ condition that a size exceeds the row's.
    """

    symbols: tuple[str, ...]
    fields: tuple[str, ...]
    rows: tuple[str, ...]
    is_beyond: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRegion:
    """One TVM function; `label` is a string literal, `comment` comment lines.

    `extents` are the statements that read sizes from the tensors. With a `table`, the table names
    the kernel, and `fields` are common to all kernels. `workspace` are the statements that divide
    the call's workspace.
    """

    symbol: str
    label: str
    comment: tuple[str, ...]
    parameters: str
    extents: tuple[str, ...]
    args_type: str
    fields: tuple[ArgumentField, ...]
    workspace: tuple[str, ...]
    kernel: str
    table: AdapterTable | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterView:
    """The TVM functions of a library's regions; `header` defines TVM's calling convention."""

    TEMPLATE: ClassVar[str] = "adapter.cc.j2"

    banner: tuple[str, ...]
    header: str
    kernels: tuple[KernelDeclaration, ...]
    regions: tuple[AdapterRegion, ...]

"""Regions that boltgen computes, and the reasons why TVM computes other operators."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod

from boltgen.errors import InvalidProblemError, assert_never
from boltgen.ir.extent import Dim, Symbol
from boltgen.problems.grouped.problem import in_groups
from boltgen.problems.layout_transform.problem import Form, ImageLayout
from boltgen.problems.problem import further_inputs, gathered
from boltgen.problems.workload import Workload


class Convention(Enum):
    """The calling convention of a region's function."""

    RELAX = "relax"  # TVM's FFI since 0.21: typed functions of TensorView
    RELAY = "relay"  # the packed C functions of TVM up to 0.19


class Sharing(Enum):
    """The matmuls of attention that share one slice of an operand."""

    HEADS = "heads"  # all heads of a sequence: (sequences, 1, ...)
    SEQUENCES = "sequences"  # the same head of all sequences: (1, heads, ...)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """An operand whose slices are shared within a batch of sequences of `heads` heads each."""

    by: Sharing
    heads: int

    def slices(self, batch: int) -> int:
        """Return the number of slices for `batch` matmuls."""
        match self.by:
            case Sharing.HEADS:
                return batch // self.heads
            case Sharing.SEQUENCES:
                return self.heads
        assert_never(self.by)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowView:
    """The place of a load's rows in a tensor whose rows are longer: `offset` elements into each row
    of `columns` elements. A row may have several dimensions.
    """

    offset: int
    columns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """The source of an epilogue's load.

    `parameter` indexes the region's parameters. `batched`: the tensor has one slice per matmul of a
    batch. `shared`: several matmuls read one slice. `within`: rows and columns of a larger tensor's
    slices, of which the first rows and columns are read. `view`: the place of the rows in longer
    rows.
    """

    parameter: int
    batched: bool = False
    shared: Shared | None = None
    within: tuple[int, int] | None = None
    view: RowView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """TVM's form of a tensor for which the kernel wants NHWC and FP16, or other channels.

    `shape` is TVM's. A matrix counts as one image of NHWC whose channels are its columns.
    """

    form: Form
    shape: tuple[int, ...]

    @property
    def channels(self) -> int:
        """The channels of TVM's tensor."""
        return self.shape[1 if self.form.layout is ImageLayout.NCHW else -1]

    @property
    def rows(self) -> tuple[int, int]:
        """Images, and pixels per image; a matrix, or a batch of matrices, is one image."""
        if self.form.layout is ImageLayout.NCHW:
            return self.shape[0], prod(self.shape[2:])
        return 1, prod(self.shape[:-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadView:
    """The place of a batch's matrices in TVM's tensor, whose rows contain `heads` heads.

    The tensor is (sequences, rows, *`inner`), or (rows, sequences, *`inner`) if `rows_first`. In
    each row the first head begins at element `offset`, each further head `stride` elements later.
    """

    heads: int
    inner: tuple[int, ...]
    offset: int
    stride: int
    rows_first: bool = False

    @property
    def row(self) -> int:
        """Elements in a row."""
        return prod(self.inner)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRoles:
    """The parameters of a region that a layer reads besides its A; `b_view` as in `Region`.

    `b_group` neighbouring heads share one matrix of B, which the tensor stores once.

    `b` is None without B, `ends` is None without groups, and `rows` is None unless rows are
    gathered. `further` are the problem's further inputs. `operands` are the prologue's operands,
    then the epilogue's.
    """

    b: int | None
    ends: int | None = None
    rows: int | None = None
    further: tuple[int, ...] = ()
    operands: tuple[Operand, ...] = ()
    b_view: HeadView | None = None
    b_group: int = 1

    @property
    def parameters(self) -> tuple[int, ...]:
        """The indices of all parameters that the layer reads besides A."""
        own = (each for each in (self.b, self.ends, self.rows) if each is not None)
        return (*own, *self.further, *(operand.parameter for operand in self.operands))


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """One external function: a workload, and the roles of its parameters.

    One parameter may have several roles (a residual that is also the activation), so roles are
    indices. `symbol` is the external function's name, `label` names its operators for people
    ("conv2d + add + relu"), `a` is the first layer's A. `note` says why it is one kernel, or why it
    does not include a neighbour. `a_stored` and `d_stored` give TVM's form of A and D if it differs
    from the kernel's; the region's call then transforms them. `origins` maps each symbol of the
    workload to an extent of the model. `a_view` and `d_view` give the places of attention heads in
    A and D, although the workload describes dense matrices.

    Raises:
        InvalidProblemError: the roles do not fit the workload's layers, loads or problems; a role
            is no parameter; the views disagree about the number of heads, or it does not divide the
            batch.
    """

    symbol: str
    label: str
    workload: Workload
    parameter_count: int
    a: int
    layers: tuple[LayerRoles, ...]
    note: str = ""
    a_stored: Stored | None = None
    d_stored: Stored | None = None
    origins: tuple[tuple[Symbol, Dim], ...] = ()
    a_view: HeadView | None = None
    d_view: HeadView | None = None

    @property
    def heads(self) -> int:
        """The heads per sequence, by views and shared operands or by `b_group`; else 1."""
        return max(self._counts, default=max(roles.b_group for roles in self.layers))

    @property
    def _counts(self) -> tuple[int, ...]:
        operands = (operand for roles in self.layers for operand in roles.operands)
        shared = (operand.shared.heads for operand in operands if operand.shared is not None)
        of_a, of_d = ((view.heads,) if view else () for view in (self.a_view, self.d_view))
        of_b = (each.b_view.heads * each.b_group for each in self.layers if each.b_view)
        return (*of_a, *of_b, *of_d, *shared)

    @property
    def views(self) -> tuple[HeadView, ...]:
        """The views of A, of each B and of D, where there are any."""
        views = (self.a_view, *(roles.b_view for roles in self.layers), self.d_view)
        return tuple(view for view in views if view is not None)

    def __post_init__(self) -> None:
        if len(self.layers) != len(self.workload.layers):
            raise InvalidProblemError(
                f"{self.symbol}: roles of {len(self.layers)} layers for a workload of "
                f"{len(self.workload.layers)}"
            )
        for index, (roles, layer) in enumerate(zip(self.layers, self.workload.layers, strict=True)):
            if len(roles.operands) != len(layer.loads):
                raise InvalidProblemError(
                    f"{self.symbol}: layer {index} has {len(roles.operands)} operands for the "
                    f"{len(layer.loads)} loads of {layer.describe()}"
                )
            if (roles.ends is None) != (in_groups(layer.problem) is None):
                raise InvalidProblemError(
                    f"{self.symbol}: layer {index} has ends={roles.ends}; its problem is "
                    f"{layer.problem.short}"
                )
            if (roles.rows is None) != (gathered(layer.problem) is None):
                raise InvalidProblemError(
                    f"{self.symbol}: layer {index} has rows={roles.rows}; its problem is "
                    f"{layer.problem.short}"
                )
            if len(roles.further) != len(further_inputs(layer.problem)):
                raise InvalidProblemError(
                    f"{self.symbol}: layer {index} has further inputs {roles.further}; its problem "
                    f"is {layer.problem.short}"
                )
            if (roles.b is None) == layer.problem.has_b:
                raise InvalidProblemError(
                    f"{self.symbol}: layer {index} has B={roles.b}; its problem is "
                    f"{layer.problem.short}"
                )
        batch = self.workload.first.problem.batch
        # The divisors of a symbolic batch are not known.
        is_odd = not isinstance(batch, Dim) and batch % self.heads != 0
        if is_odd or any(count != self.heads for count in self._counts):
            numbers = ", ".join(map(str, self._counts))
            raise InvalidProblemError(
                f"{self.symbol}: its views and operands have {numbers} heads for a batch of "
                f"{batch}; it is sequences with one number of heads"
            )
        groups = [roles.b_group for roles in self.layers]
        if any(self.heads % group for group in groups):
            raise InvalidProblemError(
                f"{self.symbol}: groups of {groups} heads share B; a group must divide the "
                f"{self.heads} heads"
            )
        used = (self.a, *(index for roles in self.layers for index in roles.parameters))
        if not all(0 <= index < self.parameter_count for index in used):
            raise InvalidProblemError(
                f"{self.symbol}: roles {used} are not all among its {self.parameter_count} "
                "parameters"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """An operator that TVM computes, and the reason as a sentence for people."""

    operator: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The place where an operator of the model runs.

    `region` is the symbol of the region that computes it, or None if TVM computes it. `reason` says
    why TVM does, or is the region's note. `flops` counts the operations of matmuls, for the middle
    of the ranges of symbolic extents, which are texts in `shape`.
    """

    operator: str
    shape: tuple[int | str, ...]
    region: str | None
    reason: str
    flops: int = 0

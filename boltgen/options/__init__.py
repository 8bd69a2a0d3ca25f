"""The options of a user, each defined once: a field with its default, its help and its check.

The command line makes its options of these fields (`boltgen.cli.terminal.flags`),
`boltgen.compile` and `boltgen.tune` take them as keyword arguments, and `docs/write_reference.py`
writes the list of options from them. A check takes text, as the command line does, and the value
that it means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from boltgen.build.progress import Logged, Reporter
from boltgen.cost.model import ANALYTICAL, COST_MODELS, TRAINED, CostModel, cost_model_named
from boltgen.families.family import Level
from boltgen.intake import given
from boltgen.intake.choices import BorderTypes, CheckLevel, RestTuning
from boltgen.intake.numerals import MOST_JOBS
from boltgen.ir.dtypes import DType, Precision
from boltgen.options import checks
from boltgen.options.option import Option, Options, described
from boltgen.tuning.choice.traffic import Sizes, traffic_of
from boltgen.tuning.session.budget import Budget
from boltgen.tuning.session.objectives import Objective, Total, objective_of
from boltgen.tuning.session.progress import Observer
from boltgen.tuning.strategies import STRATEGIES, strategy_named
from boltgen.tuning.strategies.evolutionary import Evolutionary
from boltgen.tuning.strategies.strategy import StrategyFactory

# An A100: most users who serve FP16 models have it.
DEFAULT_ARCH = "sm_80"

_MOST_SEED = 2**63 - 1

# `arch` is a parameter of its own: a model is compiled, or tuned, for an architecture.
ARCH = Option(
    "The GPU: its architecture (sm_80), its name (A100, 'RTX 4090'), or native: the GPU here, "
    "which `tune` takes by default where it measures on one.",
    given.as_it_is,
    str,
    metavar="GPU",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelOptions(Options):
    """Options that select kernels and how they are compiled.

    Raises:
        BoltgenError: a value is none of its option's; the message names the option.
    """

    precision: Precision = field(
        default=Precision.FP16,
        metadata=described(
            "What products multiply: fp16, or bf16, with FP32's range and 8 bits of significand: "
            "from sm_80 on, summed in FP32, with the frontend relax.",
            checks.one_of(Precision, "precision"),
            str,
            metavar="TYPE",
        ),
    )
    accumulate: DType = field(
        default=DType.F32,
        metadata=described(
            "What sums products: float32, or float16, faster on GeForce and rounded at each step.",
            checks.accumulator,
            str,
            metavar="DTYPE",
        ),
    )
    fuse: bool = field(
        default=True,
        metadata=described(
            "Make one kernel of products in sequence, and one product of products that share A, "
            "where that is faster.",
            given.yes_or_no,
            bool,
        ),
    )
    pad: bool = field(
        default=True,
        metadata=described(
            "Give tensors more channels than the model says, whole vectors, where that is faster.",
            given.yes_or_no,
            bool,
        ),
    )
    jobs: int | None = field(
        default=None,
        metadata=described(
            "Compilers that run at once; by default BOLTGEN_JOBS, or a core each.",
            given.optional(given.number(1, MOST_JOBS)),
            int | None,
            metavar="N",
            is_decisive=False,
        ),
    )
    reporter: Reporter = field(
        default_factory=Logged,
        metadata=described("Hears of the steps of compiling.", given.as_it_is, is_decisive=False),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions(KernelOptions):
    """Options that say how a model is read, and which kernels it may have."""

    shapes: Mapping[str, Sequence[int | str]] = field(
        default_factory=dict,
        metadata=described(
            "The shape of an input whose dimensions the model leaves open: name=1,3,224,224. One "
            "that stays open has a range or its name: name=1..64,seq.",
            given.shapes,
            list[str] | None,
            names=("--shape",),
            metavar="NAME=N,...",
        ),
    )
    io: BorderTypes = field(
        default=BorderTypes.MODEL,
        metadata=described(
            "Types of inputs and outputs: model, the model's own; half, FP16 in the place of FP32, "
            "or BF16 with --precision bf16.",
            checks.one_of(BorderTypes, "choice of io"),
            str,
            metavar="TYPES",
        ),
    )
    traffic: Sequence[Sizes] = field(
        default_factory=tuple,
        metadata=described(
            "How often which sizes of open dimensions come: a JSON file with a list of entries as "
            '{"batch": 8, "seq": 128, "count": 90}. By default all sizes count alike.',
            traffic_of,
            Path | None,
            metavar="FILE",
        ),
    )
    frontend: str | None = field(
        default=None,
        metadata=described(
            "TVM's IR: relax or relay; by default the one that the installed TVM has.",
            given.optional(checks.frontend),
            str | None,
            metavar="IR",
        ),
    )

    rest: RestTuning = field(
        default=RestTuning.ON,
        metadata=described(
            "on: TVM's tuner schedules the kernels that TVM keeps, in the same budget, and what it "
            "found is compiled; off: TVM's and boltgen's rules do. With the frontend relax.",
            checks.one_of(RestTuning, "choice of rest"),
            str,
            metavar="CHOICE",
        ),
    )

    @property
    def border(self) -> DType | None:
        """The type of the inputs and outputs that are FP32 in the model; None if they stay."""
        return self.precision.dtype if self.io is BorderTypes.HALF else None

    @property
    def of_model(self) -> dict[str, Any]:
        """The fields that all options share, to construct other options from them."""
        return {each.name: getattr(self, each.name) for each in fields(ModelOptions)}


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileOptions(ModelOptions):
    """Options of compiling a model."""

    tune: Budget | None = field(
        default=None,
        metadata=described(
            "Measure kernels first, for so long: 120s, 10min or 500trials; see `boltgen tune`.",
            given.optional(checks.budget),
            str | None,
            metavar="BUDGET",
            is_decisive=False,
        ),
    )
    device: str = field(
        default="cuda",
        metadata=described(
            f"Where to measure with --tune: {given.DEVICES}.",
            given.device,
            str,
            metavar="DEVICE",
            is_decisive=False,
        ),
    )
    calibrate: Sequence[Mapping[str, Any] | Path] = field(
        default_factory=tuple,
        metadata=described(
            "Arrays for the inputs, or an .npz file with them: the model is run on them, and what "
            "leaves the precision's range stays FP32. May be given several times.",
            given.samples,
            list[Path] | None,
            metavar="FILE",
            is_decisive=False,
        ),
    )
    finite: bool = field(
        default=False,
        metadata=described(
            "Have runs refuse NaN and infinities in inputs on the host.", given.yes_or_no, bool
        ),
    )
    check: CheckLevel = field(
        default=CheckLevel.KERNELS,
        metadata=described(
            "What to execute on the virtual GPU before it ships: kernels, at boundary shapes; "
            "full, the whole model too; or none. A kernel that fails is replaced.",
            checks.one_of(CheckLevel, "check"),
            str,
            metavar="LEVEL",
        ),
    )
    trace: Path | None = field(
        default=None,
        metadata=described(
            "Write the graph after each pass that changed it to this folder, and verify the graph "
            "after every pass.",
            given.optional(given.path),
            Path | None,
            metavar="DIR",
            is_decisive=False,
        ),
    )
    library: Sequence[Path] = field(
        default_factory=tuple,
        metadata=described(
            "A folder of compiled kernels, from `boltgen library export`, to take objects from; it "
            "is only read. May be given several times; BOLTGEN_LIBRARIES names more.",
            given.paths,
            list[Path] | None,
            metavar="DIR",
            is_decisive=False,
        ),
    )
    reuse: bool = field(
        default=True,
        metadata=described(
            "Take a model that was compiled before, by the same versions of everything, from the "
            "cache.",
            given.yes_or_no,
            is_decisive=False,
        ),
    )
    observer: Observer | None = field(
        default=None,
        metadata=described("Hears of the trials of tuning.", given.as_it_is, is_decisive=False),
    )

    @property
    def tuning(self) -> TuneOptions | None:
        """The options of tuning before compiling, or None without tuning."""
        if self.tune is None:
            return None
        return TuneOptions(
            **self.of_model, budget=self.tune, device=self.device, observer=self.observer
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneOptions(ModelOptions):
    """Options of measuring kernels for a model."""

    budget: Budget = field(
        default=Budget(seconds=120),
        metadata=described(
            "How long: 120s, 10min, 1h, or a number of trials like 500trials.",
            checks.budget,
            str,
            metavar="BUDGET",
        ),
    )
    device: str = field(
        default="cuda",
        metadata=described(
            f"Where to measure: {given.DEVICES}. vgpu needs no GPU, its times are modelled; "
            "recorded replays a table of records.",
            given.device,
            str,
            metavar="DEVICE",
        ),
    )
    level: Level = field(
        default=Level.STANDARD,
        metadata=described(
            "How many kernels round one tries: quick, standard or full, as of `library build`.",
            checks.level,
            str,
            metavar="LEVEL",
        ),
    )
    database: Path | None = field(
        default=None,
        metadata=described(
            "Where to remember; by default in the user's data folder.",
            given.optional(given.path),
            Path | None,
            metavar="FILE",
        ),
    )
    wait: bool = field(
        default=True,
        metadata=described(
            "Wait for another session on the same GPU, or give up.", given.yes_or_no, bool
        ),
    )
    seed: int = field(
        default=0,
        metadata=described(
            "Decides all that is random in a strategy.", given.number(0, _MOST_SEED)
        ),
    )
    strategy: StrategyFactory = field(
        default=Evolutionary,
        metadata=described(
            f"Proposes the configurations of a workload: {' or '.join(STRATEGIES)}.",
            checks.named(strategy_named),
            str,
            metavar="NAME",
        ),
    )
    cost_model: CostModel = field(
        default=ANALYTICAL,
        metadata=described(
            f"Says which configurations come first: {' or '.join((*COST_MODELS, *TRAINED))}, or a "
            "trained file.",
            checks.named(cost_model_named),
            str,
            metavar="NAME",
            names=("--cost-model",),
        ),
    )
    objective: Objective = field(
        default=Total(),
        metadata=described(
            "What to make small: total, the time of all models; speedup, the geometric mean of "
            "theirs; or latency:5ms,800us, what each takes beyond its own.",
            checks.named(objective_of),
            str,
            metavar="NAME",
        ),
    )
    weights: Sequence[float] = field(
        default_factory=tuple,
        metadata=described(
            "How much each of several models counts: 2,1.",
            checks.weights,
            str | None,
            metavar="N,...",
        ),
    )
    patience: int | None = field(
        default=None,
        metadata=described(
            "Leave a problem alone that got no faster in so many trials.",
            given.optional(given.number(1, _MOST_SEED)),
            int | None,
            metavar="TRIALS",
        ),
    )
    observer: Observer | None = field(
        default=None, metadata=described("Hears of the trials.", given.as_it_is)
    )

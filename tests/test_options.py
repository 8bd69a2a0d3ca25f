"""One definition of each option: the command line, Python and the docs follow from it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

import boltgen
from boltgen.cli import app
from boltgen.errors import BoltgenError, DeviceError, InvalidProblemError, TuningError
from boltgen.families.family import Level
from boltgen.ir.dtypes import DType, Precision
from boltgen.options import (
    ARCH,
    DEFAULT_ARCH,
    CompileOptions,
    KernelOptions,
    ModelOptions,
    TuneOptions,
)
from boltgen.options.option import default_of, option_of
from boltgen.pipeline import PipelineOptions
from boltgen.tuning.session.budget import Budget

KINDS: dict[str, type[ModelOptions]] = {"compile": CompileOptions, "tune": TuneOptions}
# All functions that take options; `partition` is boltgen.relax's and boltgen.relay's.
TAKERS: dict[str, type[KernelOptions]] = {**KINDS, "partition": KernelOptions}
# To tune is by default for the GPU that is measured on.
DEFAULT_ARCHES = {"compile": DEFAULT_ARCH, "tune": None}
FUNCTIONS: dict[str, Callable[..., Any]] = {"compile": boltgen.compile, "tune": boltgen.tune}
# Options of the commands alone: what is read and written, how much is said, and how they end.
OWN = {"model", "models", "arch", "output", "debug", "help", "verbose", "quiet"}


def flags(command: str) -> dict[str, Any]:
    """A command's options by the names of their parameters."""
    program: Any = typer.main.get_command(app)
    return {each.name: each for each in program.commands[command].params}


@pytest.mark.parametrize("command", KINDS)
def test_the_command_line_has_an_option_for_each_field_with_a_flag(command: str) -> None:
    found = flags(command)
    wanted = {each.name: each for each in fields(KINDS[command]) if option_of(each).flag}
    assert found.keys() - OWN == wanted.keys()
    for name, each in wanted.items():
        option = option_of(each)
        assert found[name].help == option.help
        assert (found[name].default or None) == (default_of(each) or None)
        flag = f"--{name}"
        assert found[name].opts == [*(option.names or [flag])]
        assert found[name].secondary_opts == ([f"--no-{name}"] if option.flag is bool else [])
    assert (found["arch"].default, found["arch"].help) == (DEFAULT_ARCHES[command], ARCH.help)


@pytest.mark.parametrize("command", KINDS)
def test_the_help_of_a_command_fits_eighty_columns(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(app, [command, "--help"], terminal_width=80).output
    assert max(map(len, shown.splitlines())) <= 80
    words = " ".join(shown.split())
    for each in fields(KINDS[command]):
        if option_of(each).flag:
            assert " ".join(option_of(each).help.split()) in words


@pytest.mark.parametrize("name", TAKERS)
def test_python_has_a_keyword_for_each_field(name: str) -> None:
    function = FUNCTIONS.get(name, boltgen.relax.partition)
    parameters = inspect.signature(function).parameters
    for each in fields(TAKERS[name]):
        assert parameters[each.name].default == default_of(each)
        assert f"{each.name}: {option_of(each).help}" in (function.__doc__ or "")
    assert parameters["arch"].default == DEFAULT_ARCHES.get(name, DEFAULT_ARCH)
    assert "overrides" not in parameters


@pytest.mark.parametrize("command", KINDS)
def test_python_refuses_what_is_no_option(command: str) -> None:
    function = FUNCTIONS[command]
    with pytest.raises(TypeError, match="pda"):
        function("m.onnx", pda=False)
    wrong = {"compile": TuneOptions(), "tune": CompileOptions()}[command]
    with pytest.raises(TypeError, match=f"{KINDS[command].__name__}, not {type(wrong).__name__}"):
        function("m.onnx", options=wrong)


def test_a_text_is_made_the_value_that_it_means() -> None:
    made = CompileOptions(
        accumulate="float16",  # type: ignore[arg-type]
        precision="bf16",  # type: ignore[arg-type]
        shapes=["x=1..4,3,h,?", "a=b=1"],  # type: ignore[arg-type]
        tune="2min",  # type: ignore[arg-type]
        calibrate="x.npz",  # type: ignore[arg-type]
    )
    assert made == CompileOptions(
        accumulate=DType.F16,
        precision=Precision.BF16,
        shapes={"x": ("1..4", 3, "h", "?"), "a=b": [1]},
        tune=Budget(seconds=120),
        calibrate=["x.npz"],  # type: ignore[list-item]
        reporter=made.reporter,
    )
    assert TuneOptions(level="quick").level is Level.QUICK  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "error", "named"),
    [
        ({"pad": "no"}, BoltgenError, "pad='no'"),
        ({"fuse": 1}, BoltgenError, "fuse='1'"),
        ({"jobs": 0}, BoltgenError, "jobs='0'.* 1 to 4096"),
        ({"jobs": 10**30}, BoltgenError, "1 to 4096"),
        ({"jobs": 1.5}, BoltgenError, "jobs='1.5'"),
        ({"shapes": 5}, BoltgenError, "shapes='5'"),
        ({"shapes": "x=1"}, BoltgenError, "shapes='x=1'"),
        ({"shapes": {"x": (1, -1)}}, BoltgenError, "input 'x'.* 0 to 2147483647"),
        ({"shapes": {"x": 1}}, BoltgenError, "input 'x'"),
        *(
            ({"shapes": [text]}, BoltgenError, r"name=1,3,224,224")
            for text in (
                *("x", "x=", "=1", "x=1,,2", "x=1,-2", "x=1..", "x=4..2", "x=0..4", "x=a-b"),
                *("x=\u00b2", f"x={2**31}"),
            )
        ),
        *(
            ({"accumulate": name}, InvalidProblemError, f"'{name}'.*'float16' or 'float32'")
            for name in ("int8", "bfloat16", "tf32", "", "float64")
        ),
        ({"accumulate": None}, InvalidProblemError, "None"),
        *(
            ({"precision": name}, BoltgenError, f"{name!r}.*fp16, bf16")
            for name in ("fp8", "int8", "float16", None)
        ),
        ({"io": "fp16"}, BoltgenError, "unknown choice of io 'fp16'.* model, half"),
        ({"frontend": "tf"}, BoltgenError, "'tf'.* relax and relay"),
        ({"device": "tpu"}, DeviceError, "'tpu'"),
        ({"device": []}, DeviceError, r"recorded:FILE"),
    ],
)
@pytest.mark.parametrize("kind", KINDS.values())
def test_a_value_that_is_none_of_its_options_is_refused_by_name(
    kind: type[ModelOptions], given: dict[str, Any], error: type[BoltgenError], named: str
) -> None:
    with pytest.raises(error, match=named):
        kind(**given)


def test_half_is_the_type_that_products_multiply() -> None:
    assert CompileOptions().border is None
    assert CompileOptions(io="half").border is DType.F16  # type: ignore[arg-type]
    of_bf16 = CompileOptions(io="half", precision="bf16")  # type: ignore[arg-type]
    assert of_bf16.border is DType.BF16
    assert TuneOptions(io="half").of_model["io"] is of_bf16.io  # type: ignore[arg-type]


def test_budgets_and_levels_that_are_none() -> None:
    for given in ("0s", "soon", 5):
        with pytest.raises(TuningError, match=str(given)):
            CompileOptions(tune=given)  # type: ignore[arg-type]
    with pytest.raises(TuningError, match="budget='None'"):
        TuneOptions(budget=None)  # type: ignore[arg-type]
    with pytest.raises(BoltgenError, match=r"'most'.* quick, standard, full"):
        TuneOptions(level="most")  # type: ignore[arg-type]


def test_what_is_tuned_before_compiling_is_tuned_for_the_same_model() -> None:
    assert CompileOptions().tuning is None
    options = CompileOptions(
        tune=Budget(trials=3), device="vgpu", pad=False, shapes={"x": (1,)}, jobs=2
    )
    tuning = options.tuning
    assert tuning is not None
    assert (tuning.budget, tuning.device) == (Budget(trials=3), "vgpu")
    assert tuning.of_model == options.of_model == PipelineOptions(**options.of_model).of_model


def test_whatever_a_model_may_depend_on_is_part_of_its_key() -> None:
    """A field is part of it unless its option says otherwise: a new one is not forgotten."""
    of_kernels = {"precision", "accumulate", "fuse", "pad"}
    of_model = {"shapes", "io", "traffic", "frontend", "rest", "check", "finite"}
    assert set(CompileOptions().decisive) == of_model | of_kernels

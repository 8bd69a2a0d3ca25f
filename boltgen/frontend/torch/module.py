"""Export a PyTorch module with example inputs to a `torch.export` program, for `boltgen.compile`.

torch.export says in many ways why it takes a module not; the user reads one, with what to do.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from boltgen.errors import ModelImportError

_log = logging.getLogger(__name__)

# The remedy, by the exception's class.
_REMEDIES = {
    "GuardOnDataDependentSymNode": (
        "what it computes depends on the values of a tensor (an if, a loop, or a shape): write it "
        "with torch.where or torch.cond, or export the part that does not"
    ),
    "UserError": "write the part that it names without Python's own control flow over tensors",
    "ConstraintViolationError": (
        "the dynamic_shapes do not fit the module: take another range or a fixed size for the "
        "dimension that it names"
    ),
    "Unsupported": "write the part that it names with PyTorch's own operators",
}
_REMEDY = "call torch.export.draft_export(module, inputs), which lists every cause with its place"


def is_module(model: object) -> bool:
    """Whether `model` is a torch.nn.Module that is neither exported nor scripted."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    return isinstance(model, torch.nn.Module) and not isinstance(model, torch.jit.ScriptModule)


def export_module(
    module: Any,
    example_inputs: object,
    example_kwargs: Mapping[str, object] | None = None,
    dynamic_shapes: object = None,
) -> Any:
    """The `torch.export` program of `module`, in eval mode, for inputs like the examples.

    `example_inputs` is one tensor, a sequence of positional arguments, or a mapping of keyword
    arguments; `dynamic_shapes` is torch.export's. The module's own mode stays what it was.

    Raises:
        ModelImportError: there are no example inputs, or torch.export refuses the module; the
            message says why, and what to do.
    """
    import torch  # noqa: PLC0415

    name = type(module).__name__
    args, kwargs = _arguments(name, example_inputs, example_kwargs or {})
    _check_arguments(module, args, kwargs)
    try:
        with _in_eval_mode(module), quietly(), torch.no_grad():
            return torch.export.export(
                module,
                args,
                kwargs,
                dynamic_shapes=dynamic_shapes,
            )
    except Exception as error:  # torch raises what each of its layers has for it
        raise ModelImportError(
            f"torch.export cannot export the module {name}: {_reason(error)}. Remedy: "
            f"{_REMEDIES.get(type(error).__name__, _REMEDY)}"
        ) from error


def _arguments(
    name: str, example_inputs: object, example_kwargs: Mapping[str, object]
) -> tuple[tuple[object, ...], dict[str, object]]:
    import torch  # noqa: PLC0415

    match example_inputs:
        case None if example_kwargs:
            return (), dict(example_kwargs)
        case Mapping():
            return (), {
                **{str(key): value for key, value in example_inputs.items()},
                **example_kwargs,
            }
        case torch.Tensor():
            return (example_inputs,), dict(example_kwargs)
        case tuple() | list():
            return tuple(example_inputs), dict(example_kwargs)
        case None:
            problem = "does not say what its inputs are"
        case _:
            problem = f"cannot be called with the example inputs, a {type(example_inputs).__name__}"
    raise ModelImportError(
        f"the module {name} {problem}: give example inputs, for instance "
        "boltgen.compile(module, (torch.zeros(1, 3, 224, 224),)), or a mapping of keyword arguments"
    )


def _check_arguments(module: Any, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    signature = inspect.signature(module.forward)
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ModelImportError(
            f"the example inputs do not fit {type(module).__name__}.forward{signature}: {error}"
        ) from error


@contextlib.contextmanager
def _in_eval_mode(module: Any) -> Iterator[None]:
    training = [part for part in module.modules() if part.training]
    if training:
        _log.warning(
            "the module %s is in training mode: it is exported in eval mode, in which dropout does "
            "nothing and batch norm uses its running statistics; call module.eval() to say so",
            type(module).__name__,
        )
    module.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Keep torch from logging the traceback of an error that it also raises."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _reason(error: Exception) -> str:
    """Return torch's first line, and the place in the user's code if torch names it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    place = next((line for line in lines if line.startswith("Caused by:")), "")
    first = (lines[0] if lines else type(error).__name__).rstrip(".")
    return f"{first} ({place})" if place else first

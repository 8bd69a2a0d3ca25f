"""Run random small PyTorch models whose dimensions are dynamic, at several sizes each.

`python -m benchmarks.dynamic_models [--count N] [--seed N]` draws models of a batch and a length:
steps that double, halve, extend, join, pool or transpose a dimension, between linear layers and
attention. TVM computes each model on the host, and NumPy its regions; eager PyTorch in FP32 tells
the right values and shapes. A model that PyTorch cannot export is drawn again. The counts go to
results/dynamic_models.json.
"""

from __future__ import annotations

import argparse
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from benchmarks.harness.oracle_kernels import Model
from benchmarks.record import write
from benchmarks.small_numbers import error_of
from boltgen.errors import BoltgenError
from boltgen.frontend.relax import annotate
from boltgen.frontend.torch.program import import_program
from boltgen.model_passes import passes_for
from boltgen.pipeline import PipelineOptions

WIDTH = 8
SIZES = ((2, 8), (1, 4), (3, 10), (5, 22))
_STEPS = 5
_LEARNED = ("linear", "convolve")
Step = Callable[[Tensor, nn.Module], Tensor]
# From (B, S, 8) to (B', S', 8); a step that needs weights is given a layer of its own.
STEPS: dict[str, Step] = {
    "join with itself": lambda x, _: torch.cat([x, x.tanh()], 1),
    "join batches": lambda x, _: torch.cat([x, x * 0.5], 0),
    "drop the first": lambda x, _: x[:, 1:],
    "drop the last": lambda x, _: x[:, :-1],
    "first half": lambda x, _: x[:, : x.shape[1] // 2],
    "every second": lambda x, _: x[:, ::2],
    "extend by two": lambda x, _: nn.functional.pad(x, (0, 0, 1, 1), value=0.25),
    "repeat": lambda x, _: x.repeat_interleave(2, 1),
    "turn": lambda x, _: x.flip(1),
    "roll": lambda x, _: torch.cat([x[:, 1:], x[:, :1]], 1),
    "positions": lambda x, _: x + torch.arange(x.shape[1])[None, :, None] * 0.01,
    "running sum": lambda x, _: x.cumsum(1) * 0.1,
    "softmax over the length": lambda x, _: x.softmax(1),
    "scores": lambda x, _: (x @ x.transpose(1, 2)).softmax(-1) @ x,
    "less the mean": lambda x, _: x - x.mean(1, keepdim=True),
    "over the length": lambda x, _: x / x.shape[1],
    "pool": lambda x, _: nn.functional.avg_pool1d(x.transpose(1, 2), 2).transpose(1, 2),
    "rows": lambda x, _: (x.reshape(-1, WIDTH) * 2).reshape(x.shape[0], -1, WIDTH),
    "heads": lambda x, _: (
        x.unflatten(2, (2, 4)).transpose(1, 2).sigmoid().transpose(1, 2).flatten(2)
    ),
    "linear": lambda x, layer: layer(x).relu(),
    "convolve": lambda x, layer: layer(x.transpose(1, 2)).transpose(1, 2),
}


class Drawn(nn.Module):  # type: ignore[misc]
    """Steps one after the other, and both inputs' sum before the first."""

    def __init__(self, names: Sequence[str], *, has_two: bool) -> None:
        super().__init__()
        self.names, self.has_two = names, has_two
        self.layers = nn.ModuleList(map(_layer, names))

    def forward(self, x: Tensor, z: Tensor) -> Tensor:
        """(B, S, 8) twice to what the steps make of the sum, or of the first."""
        value = x + z if self.has_two else x
        for name, layer in zip(self.names, self.layers, strict=True):
            value = STEPS[name](value, layer)
        return value


def _layer(name: str) -> nn.Module:
    if name == "linear":
        return nn.Linear(WIDTH, WIDTH)
    if name == "convolve":
        return nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)
    return nn.Identity()


def draw(source: random.Random) -> Drawn:
    """Return a model of random steps, of which one at least has weights."""
    names = source.choices(sorted(STEPS), k=_STEPS)
    names[source.randrange(_STEPS)] = source.choice(_LEARNED)
    torch.manual_seed(source.randrange(1 << 30))
    model = Drawn(names, has_two=source.random() < 0.5)
    model.eval()
    return model


def program_of(model: Drawn) -> Any:
    """Export `model` with dynamic dimensions; None if PyTorch refuses."""
    batch, length = Dim("batch", min=1, max=64), Dim("length", min=4, max=64)
    dynamic = {0: batch, 1: length}
    inputs = _inputs(*SIZES[0])
    try:
        return torch.export.export(model, inputs, dynamic_shapes=(dynamic, dynamic))
    except Exception:  # torch.export has no error of its own: the constraints do not hold
        return None


def _inputs(batch: int, length: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(batch * 100 + length)
    x, z = torch.randn(2, batch, length, WIDTH, generator=generator)
    return x, z


def status(model: Drawn, program: Any) -> str:
    """`right`, `refused: ...` by a name, `failed: ...` without one, or `wrong: ...`."""
    try:
        module = import_program(program).module
        compiled = Model.of_annotated(annotate(module, passes_for("sm_80", PipelineOptions())))
    except BoltgenError as error:
        return f"refused: {error}"
    except Exception as error:
        return f"failed: {str(error).strip().splitlines()[-1]}"
    for size in SIZES:
        inputs = _inputs(*size)
        with torch.no_grad():
            wanted = model(*inputs).numpy()
        try:
            (got,) = compiled.run(*(each.numpy() for each in inputs))
        except Exception as error:
            return f"wrong: at {size}, {str(error).strip().splitlines()[-1]}"
        if got.shape != wanted.shape:
            return f"wrong: at {size}, the shape {got.shape} instead of {wanted.shape}"
        worst = error_of(got, wanted, absolute=1e-3) if wanted.size else 0.0
        if worst > 1:
            return f"wrong: at {size}, {worst:.3g} times the tolerance"
    return "right"


def main(count: int, seed: int) -> None:
    """Draw, run and count."""
    logging.getLogger("torch").setLevel(logging.CRITICAL)  # guards that sympy cannot solve
    source = random.Random(seed)
    counts: Counter[str] = Counter()
    found = []
    while sum(counts.values()) < count:
        model = draw(source)
        program = program_of(model)
        if program is None:
            continue
        said = status(model, program)
        counts[said.partition(":")[0]] += 1
        if said != "right":
            found.append(f"{said}: {', '.join(model.names)}")
            print(found[-1], flush=True)
    print(dict(counts))
    figures = {"models": count, "seed": seed, **counts, "not right": found}
    write("dynamic_models", figures, "no model is wrong at any size, and none fails without a name")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="models")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    options = parser.parse_args()
    main(options.count, options.seed)

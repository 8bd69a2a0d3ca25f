"""The command line: `python -m models resnet50 --batch 32 -o resnet50.onnx`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import onnx

from models.onnx_graph import parameter_count
from models.registry import MODELS, build

_EXAMPLES = """\
examples:
  python -m models resnet50 --batch 32 -o resnet50.onnx
  python -m models resnet18 --image-size 64 --dtype float16
  python -m models bert_base --seq-len 64 --layers 2 --mask
"""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    name: str = options.pop("model")
    path: Path = options.pop("output") or Path(f"{name}.onnx")
    try:
        model = build(name, **options)
    except ValueError as error:
        parser.error(str(error))
    onnx.save(model, path)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {parameter_count(model):,} parameters")
    for role, values in (("input", model.graph.input), ("output", model.graph.output)):
        for value in values:
            shape = [dimension.dim_value for dimension in value.type.tensor_type.shape.dim]
            print(f"  {role} {value.name} {shape}")
    return 0


def _parser() -> argparse.ArgumentParser:
    table = "\n".join(
        f"  {name:<12} {entry.summary}; {entry.parameters_millions} M parameters"
        for name, entry in MODELS.items()
    )
    parser = argparse.ArgumentParser(
        prog="python -m models",
        description="Write a model with random weights and static shapes to an ONNX file.",
        epilog=f"models:\n{table}\n\n{_EXAMPLES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,  # the builder decides absent arguments
    )
    parser.add_argument("model", choices=MODELS, metavar="MODEL", help="one of the models below")
    parser.add_argument(
        "-o", "--output", type=Path, default=None, help="file to write (default: MODEL.onnx)"
    )
    parser.add_argument("--batch", type=int, help="images or sequences per batch (default: 1)")
    parser.add_argument("--image-size", type=int, help="height and width (default: 224)")
    parser.add_argument("--classes", type=int, help="length of the logits (default: 1000)")
    parser.add_argument("--seq-len", type=int, help="bert_base: sequence length (default: 128)")
    parser.add_argument("--layers", type=int, help="bert_base: encoder layers (default: 12)")
    parser.add_argument(
        "--mask", action="store_true", help="bert_base: take an additive attention mask"
    )
    parser.add_argument("--seed", type=int, help="seed of the random weights (default: 0)")
    parser.add_argument("--dtype", choices=("float32", "float16"), help="default: float32")
    return parser


if __name__ == "__main__":
    sys.exit(main())

"""Draw the picture of the README: `python docs/draw_overview.py` writes docs/overview.svg."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 920, 330
_INK, _PALE, _OURS, _THEIRS = "#1f2933", "#f5f7fa", "#d9f0e3", "#e4e7eb"


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A step, an input or an output: its place, its colour, a title and the lines below it."""

    x: int
    y: int
    width: int
    title: str
    lines: tuple[str, ...]
    fill: str = _OURS
    height: int = 84


_BOXES = {
    "model": Box(
        x=10, y=30, width=150, title="Model", fill=_PALE, lines=("ONNX, PyTorch,", "Relax or Relay")
    ),
    "graph": Box(
        x=200,
        y=30,
        width=160,
        title="One graph",
        lines=("fold constants, FP16,", "NHWC, find regions"),
    ),
    "choose": Box(
        x=400,
        y=30,
        width=160,
        title="Choose",
        lines=("a configuration,", "measured or predicted"),
    ),
    "kernels": Box(
        x=600, y=30, width=150, title="Kernels", lines=("CUDA C++ from", "CUTLASS templates")
    ),
    "tvm": Box(
        x=400,
        y=150,
        width=350,
        title="TVM",
        fill=_THEIRS,
        height=60,
        lines=("compiles all other operators",),
    ),
    "library": Box(
        x=790, y=90, width=120, title="One library", fill=_PALE, lines=("model.so",), height=70
    ),
    "tuner": Box(x=200, y=150, width=160, title="Tuner", height=60, lines=("GPU or virtual GPU",)),
    "check": Box(
        x=400,
        y=245,
        width=350,
        title="Check",
        height=70,
        lines=("the virtual GPU executes every kernel",),
    ),
}
# Start, points on the way, end.
_ARROWS = (
    ((160, 72), (200, 72)),
    ((360, 72), (400, 72)),
    ((560, 72), (600, 72)),
    ((750, 72), (770, 72), (770, 110), (790, 110)),
    ((280, 114), (280, 132), (480, 132), (480, 150)),
    ((750, 180), (770, 180), (770, 140), (790, 140)),
    ((360, 200), (380, 200), (380, 96), (400, 96)),
    ((850, 160), (850, 280), (750, 280)),
)


def drawing() -> str:
    """The picture as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        'font-family="Helvetica, Arial, sans-serif">',
        '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        f'orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="{_INK}"/></marker>',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
    ]
    for points in _ARROWS:
        path = " ".join(f"{x},{y}" for x, y in points)
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{_INK}" stroke-width="1.5" '
            'marker-end="url(#head)"/>'
        )
    for box in _BOXES.values():
        parts.append(
            f'<rect x="{box.x}" y="{box.y}" width="{box.width}" height="{box.height}" rx="6" '
            f'fill="{box.fill}" stroke="{_INK}"/>'
        )
        middle = box.x + box.width // 2
        parts.append(_text(middle, box.y + 26, box.title, size=16, weight="bold"))
        for number, line in enumerate(box.lines):
            parts.append(_text(middle, box.y + 47 + 18 * number, line, size=13))
    return "\n".join([*parts, "</svg>", ""])


def _text(x: int, y: int, text: str, *, size: int, weight: str = "normal") -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="{size}" font-weight="{weight}" fill="{_INK}" '
        f'text-anchor="middle">{escape(text)}</text>'
    )


if __name__ == "__main__":
    Path(__file__).with_name("overview.svg").write_text(drawing(), encoding="utf-8")

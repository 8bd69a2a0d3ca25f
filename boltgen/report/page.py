"""Write a report as one page of HTML that needs no other file and no network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import jinja2

from boltgen.report.compare import Comparison
from boltgen.report.curves import CURVE_HEIGHT, CURVE_WIDTH, Curve
from boltgen.report.facts import Facts
from boltgen.report.figures import HEIGHT, STEP, WIDTH, partition, roofline
from boltgen.report.passes import FunctionChanges

# In the head of each page; it marks boltgen's files.
_GENERATOR = b'<meta name="generator" content="boltgen">'


def is_page(file: BinaryIO) -> bool:
    """Return whether a file is a report's page."""
    return _GENERATOR in file.read(1024)


def page(
    facts: Facts,
    against: Comparison | None = None,
    curves: Sequence[Curve] | None = None,
    passes: Sequence[FunctionChanges] = (),
) -> str:
    """Return the page; names and texts of the model are escaped.

    `curves` are None if the user did not ask for trials. `passes` are the changes in a trace.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2").render(
        facts=facts,
        metadata=facts.metadata,
        against=against,
        partition=partition(facts),
        roofline=roofline(facts),
        width=WIDTH,
        height=HEIGHT,
        step=STEP,
        curves=curves,
        passes=passes,
        curve_width=CURVE_WIDTH,
        curve_height=CURVE_HEIGHT,
    )

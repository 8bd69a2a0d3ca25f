"""The only Jinja environment: it renders views to text."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

import jinja2

from boltgen.codegen.views import View
from boltgen.paths import resource_dir


@cache
def environment() -> jinja2.Environment:
    """Return the environment that loads templates by name; an undefined variable is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(resource_dir("templates")),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # C++ is not HTML; cpp_text makes the model's texts safe
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(view: View) -> str:
    """Return the view's template, filled with the view's fields."""
    values: dict[str, Any] = {field.name: getattr(view, field.name) for field in fields(view)}
    if "\n" in view.TEMPLATE:
        return environment().from_string(view.TEMPLATE).render(values)
    return environment().get_template(view.TEMPLATE).render(values)

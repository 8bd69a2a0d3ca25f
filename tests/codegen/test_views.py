from __future__ import annotations

import typing
from dataclasses import fields, is_dataclass

import jinja2
import jinja2.meta
import pytest

from benchmarks.cases.attention import golden_attention_specs
from benchmarks.cases.attention_sm90 import golden_attention_sm90_specs
from benchmarks.cases.chains import golden_chain_specs
from benchmarks.cases.kernels import golden_specs, move_spec
from benchmarks.cases.separable import golden_separable_specs
from boltgen.codegen.render import environment, render
from boltgen.codegen.views import AdapterView, ArgumentField, UnitView, View
from boltgen.families.registry import FAMILIES
from boltgen.paths import resource_dir
from boltgen.problems.layout_transform.problem import NHWC_F16, Move


def kernel_views() -> list[type[View]]:
    """The views of all families: of kernels that the tests of kernels are made of."""
    found = golden_specs() | golden_chain_specs() | golden_attention_specs()
    found |= golden_attention_sm90_specs() | golden_separable_specs()
    specs = list(found.values())
    specs.append(move_spec(Move(source=NHWC_F16, target=NHWC_F16), "sm_80"))
    assert {spec.family for spec in specs} == {family.name for family in FAMILIES}
    views = (FAMILIES.named(spec.family).view(spec, "f", "g") for spec in specs)
    return list(dict.fromkeys(map(type, views)))


VIEWS: tuple[type[View], ...] = (UnitView, AdapterView, *kernel_views())


def _variables(template: str) -> set[str]:
    """Undeclared variables of a template and of those that it includes, less what `with` binds."""
    source = (resource_dir("templates") / template).read_text()
    tree = environment().parse(source)
    included = jinja2.meta.find_referenced_templates(tree)
    bound = {
        target.name
        for scope in tree.find_all(jinja2.nodes.With)
        for target in scope.targets
        if isinstance(target, jinja2.nodes.Name)
    }
    inner = set().union(*(_variables(name) for name in included if name is not None))
    return jinja2.meta.find_undeclared_variables(tree) | (inner - bound)


@pytest.mark.parametrize("view", VIEWS)
def test_fields_of_a_view_are_the_variables_of_its_template(view: type[View]) -> None:
    assert is_dataclass(view)
    assert {field.name for field in fields(view)} == _variables(view.TEMPLATE)


def test_every_template_has_a_view_or_is_included_by_one() -> None:
    known = {view.TEMPLATE for view in VIEWS}
    for view in VIEWS:
        tree = environment().parse((resource_dir("templates") / view.TEMPLATE).read_text())
        known |= {name for name in jinja2.meta.find_referenced_templates(tree) if name}
    assert {path.name for path in resource_dir("templates").glob("*.j2")} == known


@pytest.mark.parametrize(
    "path", sorted(resource_dir("templates").glob("*.j2")), ids=lambda p: p.name
)
def test_templates_hold_no_logic(path: typing.Any) -> None:
    tree = environment().parse(path.read_text())
    nodes = jinja2.nodes
    forbidden = (nodes.BinExpr, nodes.Compare, nodes.Call, nodes.UnaryExpr, nodes.CondExpr)
    assert not list(tree.find_all(forbidden))


def test_an_undefined_variable_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError, match="missing"):
        environment().from_string("{{ missing }}").render()


def test_a_view_is_rendered_as_it_is() -> None:
    view = UnitView(banner=("// <b> & 'x'",), headers=("a.h",), kernels=("one\n", "two\n"))
    assert render(view) == "// <b> & 'x'\n\n#include \"a.h\"\n\none\n\ntwo\n"


def test_views_are_frozen() -> None:
    with pytest.raises(AttributeError):
        ArgumentField(name="a", value="b").name = "c"  # type: ignore[misc]

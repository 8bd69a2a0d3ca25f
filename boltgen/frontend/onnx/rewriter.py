"""Walk a graph once: fold, rewrite, and type every node, in this order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from boltgen.errors import ModelImportError
from boltgen.frontend.imported import first_line
from boltgen.frontend.onnx.fold import fold, follow
from boltgen.frontend.onnx.importers import Importer
from boltgen.frontend.onnx.inline import branch_nodes
from boltgen.frontend.onnx.order import needed, subgraphs
from boltgen.frontend.onnx.rewrites import RULES
from boltgen.frontend.onnx.rewrites.registry import (
    AS_DEFINED,
    LIFTED_TO,
    Builder,
    Rule,
    UnknownError,
    UnsupportedError,
)
from boltgen.frontend.onnx.scope import Scope, attribute, described
from boltgen.frontend.onnx.unroll import Unroller
from boltgen.frontend.onnx.validate import STANDARD
from boltgen.frontend.onnx.windows import WINDOWED, check_windows

# A rewriting's nodes are rewritten again, but no chain of rules is as long.
MOST_REWRITINGS = 12

# The remedy for operators that a rule must rewrite, if the rule lacks a type, a rank or a size.
NOT_KNOWN = "a type or a size that it needs is not known"
_SIZES = "give the model's inputs fixed sizes with --shape"


class Record:
    """The changes that were made."""

    def __init__(self) -> None:
        self.folded: Counter[str] = Counter()
        self.rewritten: Counter[tuple[str, str]] = Counter()

    def notes(self) -> tuple[str, ...]:
        """A sentence for each kind of change."""
        said = []
        if self.folded:
            shown = ", ".join(f"{count} {name}" for name, count in self.folded.most_common(8))
            more = ", ..." if len(self.folded) > 8 else ""
            said.append(
                f"{self.folded.total()} operators on constants and known shapes were computed "
                f"beforehand: {shown}{more}."
            )
        for (operator, why), count in self.rewritten.items():
            said.append(f"{operator} was rewritten in {_times(count)}: {why}.")
        return tuple(said)


def _times(count: int) -> str:
    return "1 place" if count == 1 else f"{count} places"


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The reason why a node cannot be imported; `remedy` is "" if the operator is lacking."""

    node: Any
    what: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        domain = f", domain {self.node.domain!r}" if self.node.domain else ""
        what = f": {self.what}" if self.what else ""
        return f"{self.node.op_type} ({_where(self.node)}{domain}{what})"


class Rewriter:
    """Rewrites one graph into `scope.nodes`; branches are graphs of their own."""

    def __init__(self, scope: Scope, importer: Importer, record: Record) -> None:
        self.scope = scope
        self._importer = importer
        self._record = record
        self.refused: list[Refusal] = []

    def run(self, nodes: Iterable[Any], opset: int) -> None:
        """Rewrite nodes of a version of the standard operator set.

        Raises:
            ModelImportError: a node is malformed.
        """
        for node in nodes:
            if node.op_type != "Constant":
                self.scope.read.update(node.input)
        for node in nodes:
            try:
                self._visit(node, opset, MOST_REWRITINGS)
            except ModelImportError:
                raise
            except Exception as error:  # whatever a malformed node makes of attributes and types
                raise ModelImportError(
                    f"{described(node)} cannot be read: {first_line(error)}"
                    f"{self._invalid(node, opset)}. Export or download the model again"
                ) from error

    def _invalid(self, node: Any, opset: int) -> str:
        """Return the ONNX checker's complaint of a node."""
        checker = self.scope.onnx.checker
        context = checker.C.CheckerContext()
        context.ir_version = 8
        context.opset_imports = {"": opset}
        try:
            checker.check_node(node, context)
        except Exception as error:  # protobuf's errors too
            return f" (the ONNX checker says: {first_line(error)})"
        return ""

    def _visit(self, node: Any, opset: int, left: int, maker: Rule | None = None) -> None:
        """Rewrite a node by all rules except the rule that made it."""
        standard = node.domain in STANDARD
        if standard and node.op_type in WINDOWED and maker is None:
            check_windows(node, self.scope)
        if standard and opset < LIFTED_TO and self._lift(node, opset, left):
            return
        if standard and fold(node, self.scope):
            if node.op_type != "Constant":
                self._record.folded[node.op_type] += 1
            return
        if standard and (self._branch(node, opset, left) or self._unroll(node, opset, left)):
            return
        if left:
            name = node.op_type if standard else f"{node.domain}.{node.op_type}"
            rules = [
                rule
                for rule in RULES.get(name, ())
                if not rule.below and rule.only in {"", self._importer.name} and rule is not maker
            ]
            if standard and not self._is_taken(node):
                rules.append(AS_DEFINED)
            if any(self._applied(node, rule, left) for rule in rules):
                return
        if not self._is_taken(node):
            self.refused.append(Refusal(node=node))
        self._keep(node, opset)

    def _is_taken(self, node: Any) -> bool:
        return node.domain in STANDARD and node.op_type in self._importer.takes

    def _lift(self, node: Any, opset: int, left: int) -> bool:
        rules = [rule for rule in RULES.get(node.op_type, ()) if opset < rule.below]
        return any(self._applied(node, rule, left) for rule in rules)

    def _applied(self, node: Any, rule: Rule, left: int) -> bool:
        builder = Builder(self.scope, node)
        try:
            results = rule.apply(builder)
        except UnknownError:
            if node.domain not in STANDARD:
                self.refused.append(Refusal(node=node, what=NOT_KNOWN, remedy=_SIZES))
            return False
        except UnsupportedError as error:
            self.refused.append(Refusal(node=node, what=error.what, remedy=error.remedy))
            return False
        if results is None:
            return False
        builder.finish(results)
        self._record.rewritten[node.op_type, rule.why] += 1
        for made in builder.nodes:
            self._visit(made, builder.opset, left - 1, rule)
        return True

    def _branch(self, node: Any, opset: int, left: int) -> bool:
        """Write the branch that a constant condition takes in the place of an If."""
        if node.op_type != "If":
            return False
        condition = self.scope.constant(node.input[0])
        if condition is None or condition.size != 1:
            return False
        taken = "then_branch" if condition.reshape(()) else "else_branch"
        nodes = branch_nodes(attribute(node, taken), node, self.scope)
        self._record.rewritten["If", "its condition is a constant"] += 1
        for each in nodes:
            self.scope.read.update(each.input)
        for each in nodes:
            self._visit(each, opset, left)
        return True

    def _unroll(self, node: Any, opset: int, left: int) -> bool:
        """Write the iterations of a Loop or a Scan one after another."""
        if node.op_type not in {"Loop", "Scan"}:
            return False
        try:
            Unroller(node, self.scope, lambda made: self._visit(made, opset, left)).run()
        except UnsupportedError as error:
            if not self._is_taken(node):
                self.refused.append(Refusal(node=node, what=error.what, remedy=error.remedy))
            return False
        self._record.rewritten[node.op_type, "its iterations were written out"] += 1
        return True

    def _keep(self, node: Any, opset: int) -> None:
        kept = type(node)()
        kept.CopyFrom(node)
        for graph in subgraphs(kept):
            self._rewrite_branch(graph, opset)
        if node.op_type == "Reshape":
            self._fix_reshape(kept)
        self.scope.infer(kept)
        follow(kept, self.scope)
        self.scope.append(kept)

    def _fix_reshape(self, node: Any) -> None:
        """Write a shape with one dynamic extent as a constant with -1 in its place."""
        wanted = self.scope.elements(node.input[1])
        if wanted is None or self.scope.tensor(node.input[1]) is not None:
            return
        extents = self.scope.extents(node.input[0]) or ()
        final = [
            0 if isinstance(each, str) and extents[place : place + 1] == (each,) else each
            for place, each in enumerate(wanted)
        ]
        unknown = [each for each in final if isinstance(each, str)]
        if len(unknown) > 1 or (unknown and -1 in final) or attribute(node, "allowzero", 0):
            return
        numbers = [-1 if isinstance(each, str) else each for each in final]
        name = self.scope.fresh(f"{node.output[0]}_shape")
        self.scope.add_array(name, np.asarray(numbers, np.int64))
        node.input[1] = name

    def _rewrite_branch(self, graph: Any, opset: int) -> None:
        inner = Scope(self.scope.opset, self.scope)
        for tensor in graph.initializer:
            inner.add_tensor(tensor)
        for value in graph.input:
            inner.types[value.name] = value.type
        nodes = list(graph.node)
        rewriter = Rewriter(inner, self._importer, self._record)
        rewriter.run(nodes, opset)
        self.refused += rewriter.refused
        write_graph(graph, inner)


def _where(node: Any) -> str:
    return f"node {node.name!r}" if node.name else f"the node that makes {node.output[0]!r}"


def write_graph(graph: Any, scope: Scope) -> None:
    """Put a scope's nodes that its outputs need into a GraphProto, with their constants."""
    outputs = [value.name for value in graph.output]
    for name in outputs:
        if any(name in each.tensors for each in scope.around()):
            copy = scope.fresh(f"{name}_value")
            tensor = scope.tensor(name)
            renamed = type(tensor)()
            renamed.CopyFrom(tensor)
            renamed.name = copy
            scope.add_tensor(renamed)
            scope.tensors.pop(name, None)
            scope.nodes.append(scope.onnx.helper.make_node("Identity", [copy], [name]))
    kept, names = needed(scope.nodes, outputs)
    del graph.node[:], graph.initializer[:], graph.value_info[:], graph.sparse_initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(tensor for name, tensor in scope.tensors.items() if name in names)

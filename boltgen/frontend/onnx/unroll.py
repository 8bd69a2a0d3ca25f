"""Unroll loops with a known number of iterations into that many copies of their bodies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from boltgen.frontend.onnx.inline import body_nodes
from boltgen.frontend.onnx.rewrites.registry import UnsupportedError
from boltgen.frontend.onnx.scope import Scope, attribute, operand

# More iterations, or more operators in all of them, take TVM many minutes.
MOST_STEPS, MOST_OPERATORS = 1024, 8192

# Adds a node to the graph, after it was rewritten.
Visit = Callable[[Any], None]


class Unroller:
    """Unrolls one Loop or Scan into a scope; `visit` takes each of the nodes."""

    def __init__(self, node: Any, scope: Scope, visit: Visit) -> None:
        self._node, self._scope, self._visit = node, scope, visit
        self._body = attribute(node, "body")

    def run(self) -> None:
        """Write all iterations, and give their results the names of the node's.

        Raises:
            UnsupportedError: the number of iterations is not known, or too large.
        """
        if self._node.op_type == "Loop":
            self._loop()
        else:
            self._scan()

    def _loop(self) -> None:
        node = self._node
        state = list(node.input[2:])
        limit = self._limit()
        parts: list[list[str]] = [[] for _ in self._body.output[1 + len(state) :]]
        goes_on, step = self._truth(operand(node, 1)), 0
        while goes_on and (limit is None or step < limit):
            self._check(step + 1)
            given = [self._constant(np.int64(step)), self._constant(np.True_), *state]
            condition, *results = self._step(given)
            state, scanned = results[: len(state)], results[len(state) :]
            for part, value in zip(parts, scanned, strict=True):
                part.append(value)
            goes_on, step = self._truth(condition), step + 1
        self._finish(state, parts, [0] * len(parts))

    def _limit(self) -> int | None:
        """Return the trip count of a Loop, or None if it has none.

        Raises:
            UnsupportedError: it is computed, or too large.
        """
        name = operand(self._node, 0)
        if not name:
            return None
        known = self._scope.constant(name)
        if known is None:
            raise UnsupportedError(
                "its number of iterations depends on data",
                "make it a constant, or give the sizes that it depends on with --shape",
            )
        return int(known.reshape(-1)[0])

    def _truth(self, name: str) -> bool:
        """The condition of a Loop, which must be known."""
        known = self._scope.constant(name) if name else np.True_
        if known is None:
            raise UnsupportedError(
                "its condition depends on data",
                "write it with a constant number of iterations, and choose results with Where",
            )
        return bool(known.reshape(-1)[0]) if name else True

    def _scan(self) -> None:
        node, count = self._node, int(attribute(self._node, "num_scan_inputs"))
        state, scanned = list(node.input[:-count]), list(node.input[-count:])
        axes = self._numbers("scan_input_axes", count)
        backwards = self._numbers("scan_input_directions", count)
        steps = self._extent(scanned, axes)
        self._check(steps)
        made = len(self._body.output) - len(state)
        parts: list[list[str]] = [[] for _ in range(made)]
        for step in range(steps):
            elements = [
                self._element(name, axis, steps - 1 - step if back else step)
                for name, axis, back in zip(scanned, axes, backwards, strict=True)
            ]
            results = self._step([*state, *elements])
            state = results[: len(state)]
            for part, value in zip(parts, results[len(state) :], strict=True):
                part.append(value)
        for part, back in zip(parts, self._numbers("scan_output_directions", made), strict=True):
            if back:
                part.reverse()
        self._finish(state, parts, self._numbers("scan_output_axes", made))

    def _numbers(self, name: str, count: int) -> list[int]:
        return list(attribute(self._node, name) or [0] * count)

    def _extent(self, names: Sequence[str], axes: Sequence[int]) -> int:
        """The number of elements that all scanned tensors have along their axes.

        Raises:
            UnsupportedError: it is not known, or they differ.
        """
        found = set()
        for name, axis in zip(names, axes, strict=True):
            extents = self._scope.extents(name)
            found.add(extents[axis] if extents is not None else None)
        (extent, *others) = found
        if others or not isinstance(extent, int):
            shown = ", ".join(sorted(map(str, found)))
            raise UnsupportedError(
                f"it scans {shown} elements", "give the dimension that it scans a size with --shape"
            )
        return extent

    def _check(self, steps: int) -> None:
        count = len(self._body.node)
        if steps > MOST_STEPS or steps * count > MOST_OPERATORS:
            raise UnsupportedError(
                f"{steps} iterations of {count} operators",
                f"boltgen unrolls at most {MOST_STEPS} iterations and {MOST_OPERATORS} operators: "
                "make it shorter",
            )

    def _step(self, given: Sequence[str]) -> list[str]:
        """One iteration with these values of the body's inputs; the values of its outputs."""
        nodes, results = body_nodes(self._body, given, self._node, self._scope)
        self._scope.read.update(results)
        for each in nodes:
            self._scope.read.update(each.input)
        for each in nodes:
            self._visit(each)
        return results

    def _constant(self, value: Any) -> str:
        name = self._scope.fresh(f"{self._node.output[0]}_step")
        self._scope.add_array(name, np.asarray(value))
        return name

    def _add(self, operator: str, inputs: Sequence[str], output: str = "", **more: Any) -> str:
        output = output or self._scope.fresh(f"{self._node.output[0]}_{operator}")
        make = self._scope.onnx.helper.make_node
        self._visit(make(operator, inputs, [output], name=output, **more))
        return output

    def _element(self, name: str, axis: int, place: int) -> str:
        return self._add("Gather", [name, self._constant(np.int64(place))], axis=axis)

    def _finish(
        self, state: Sequence[str], parts: Sequence[list[str]], axes: Sequence[int]
    ) -> None:
        """Name the last state, and join what the iterations made."""
        results = self._node.output
        for value, name in zip(state, results, strict=False):
            if name:
                self._add("Identity", [value], name)
        for part, axis, name in zip(parts, axes, results[len(state) :], strict=False):
            if not name:
                continue
            if not part:
                raise UnsupportedError(
                    "it has no iterations, and joins what they make", "leave the loop out"
                )
            at = self._constant(np.asarray([axis]))
            wide = [self._add("Unsqueeze", [value, at]) for value in part]
            self._add("Concat", wide, name, axis=axis)

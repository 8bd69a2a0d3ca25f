"""Write complex numbers of torch.export programs as pairs of real numbers.

TVM has no complex type. `write_real` gives every complex value of a program two real ones, its real
and its imaginary part, and writes each operator over them. Complex parameters and constants become
two real ones each. A rotary embedding in complex numbers becomes products with cosines and sines.
"""

from __future__ import annotations

from typing import Any

from boltgen.errors import ModelImportError
from boltgen.frontend.torch.complex_rules import RULES, PairWriter, Parts, is_complex
from boltgen.frontend.torch.types import overloads

# Operators that check a value's type, which changes here.
_CHECKS = overloads(("_assert_tensor_metadata", "default"))


def refuse_complex_inputs(program: Any) -> None:
    """Raise `ModelImportError` if an input of a program is complex."""
    inputs = set(program.graph_signature.user_inputs)
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in inputs and is_complex(node):
            raise ModelImportError(
                f"input {node.name!r} of the torch.export program is complex, and inputs are real: "
                "pass torch.view_as_real of it, and call torch.view_as_complex inside the model"
            )


def write_real(program: Any) -> None:
    """Write the complex values of a decomposed program as pairs of real ones, in place.

    Raises:
        ModelImportError: a result is complex, or an operator on complex numbers is not
            known; the message names it.
    """
    import torch  # noqa: PLC0415

    own = program.graph_module
    for module in own.modules():
        is_inner = isinstance(module, torch.fx.GraphModule) and module is not own
        if is_inner and any(map(is_complex, module.graph.nodes)):
            raise ModelImportError(
                "the torch.export program computes with complex numbers inside a branch or a loop: "
                "compute them outside of it, or with pairs of real numbers (torch.view_as_real)"
            )
    if any(map(is_complex, program.graph.nodes)):
        _Writer(program).run()


class _Writer(PairWriter):
    """Writes the complex values of one program."""

    def __init__(self, program: Any) -> None:
        super().__init__(program.graph)
        self._program = program

    def run(self) -> None:
        """Write every node, and remove the complex ones."""
        nodes = list(self.graph.nodes)
        for node in nodes:
            if node.op == "placeholder" and is_complex(node):
                self._split_input(node)
            elif node.op == "output":
                self._refuse_results(node)
            elif self._is_concerned(node):
                with self.graph.inserting_before(node):
                    self._write(node)
        for node in reversed(nodes):
            is_left = node.op == "call_function" and self._is_concerned(node)
            if (is_left or node in self.pairs) and not node.users:
                self.graph.erase_node(node)
        self._program.graph_module.recompile()

    def _is_concerned(self, node: Any) -> bool:
        if is_complex(node) or any(each in self.pairs for each in node.all_input_nodes):
            return True
        return any(isinstance(each, complex) for each in (*node.args, *node.kwargs.values()))

    def _write(self, node: Any) -> None:
        name = node.target.__name__
        if name in _CHECKS:
            return
        rule = RULES.get(name)
        made = rule(self, node) if rule else NotImplemented
        if made is NotImplemented:
            raise ModelImportError(
                f"{node.name!r} of the torch.export program computes {name} of complex numbers, "
                "which boltgen cannot write with real numbers: compute it with torch.view_as_real, "
                "or outside of the model"
            )
        if isinstance(made, Parts):
            self.pairs[node] = made
        else:
            node.replace_all_uses_with(made)

    def _split_input(self, node: Any) -> None:
        """Give a complex parameter, buffer or constant two real ones in its place."""
        program, signature = self._program, self._program.graph_signature
        place, spec = next(
            (place, spec)
            for place, spec in enumerate(signature.input_specs)
            if spec.arg.name == node.name
        )
        values = program.state_dict if spec.target in program.state_dict else program.constants
        tensor = values.pop(spec.target).detach().resolve_conj()
        specs, parts = [], []
        for part, value in (("real", tensor.real), ("imaginary", tensor.imag)):
            with self.graph.inserting_before(node):
                made = self.graph.placeholder(f"{node.name}_{part}")
            with self.mode:
                made.meta["val"] = node.meta["val"].new_empty(value.shape, dtype=value.dtype)
            target = f"{spec.target}_{part}"
            values[target] = value.contiguous()
            own = type(spec.arg)(name=made.name)
            specs.append(type(spec)(spec.kind, own, target, spec.persistent))
            parts.append(made)
        signature.input_specs[place : place + 1] = specs
        self.pairs[node] = Parts(*parts)

    def _refuse_results(self, node: Any) -> None:
        for value in node.all_input_nodes:
            if value in self.pairs:
                raise ModelImportError(
                    f"the result {value.name!r} of the torch.export program is complex, and "
                    "results are real: return torch.view_as_real of it"
                )

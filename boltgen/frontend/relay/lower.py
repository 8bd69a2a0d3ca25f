"""From a region's Relay function to a `Region`: problem, epilogue, and each parameter's role.

Arrow: lower. Roles are found by walking the body, never by position: one parameter may have two.
"""

from __future__ import annotations

from tvm import relay

from boltgen.frontend.carving import NOTE
from boltgen.frontend.lowering import label, lower_graph
from boltgen.frontend.relay.translate import translate
from boltgen.frontend.relay.versions import function_attribute
from boltgen.frontend.relay.workspaces import result_of
from boltgen.ir.region import AnyRegion, Rejected

__all__ = ["label", "lower"]


def lower(function: relay.Function) -> AnyRegion | Rejected:
    """The region that a function of one product and its tail, or of a chain of them, computes.

    The function's types are known; its attribute "global_symbol" becomes the region's symbol.
    """
    computed = relay.Function(function.params, result_of(function))
    translation = translate(computed)
    symbol = str(function.attrs["global_symbol"])
    note = function_attribute(function, NOTE) or ""
    return lower_graph(translation.graph, symbol, translation.leaves, function.params, note)

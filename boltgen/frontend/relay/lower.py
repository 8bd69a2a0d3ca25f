"""From a region's Relay function to a `Region`: problem, epilogue, and each parameter's role.

Arrow: lower. Roles are found by walking the body, never by position: one parameter may have two.
"""

from __future__ import annotations

from tvm import relay

from boltgen.frontend.lowering import label, lower_graph
from boltgen.frontend.relay.translate import translate
from boltgen.ir.region import Region, Rejected

__all__ = ["label", "lower"]


def lower(function: relay.Function) -> Region | Rejected:
    """The region that a function of one matrix product or convolution and its tail computes.

    The function's types are known; its attribute "global_symbol" becomes the region's symbol.
    """
    translation = translate(function)
    symbol = str(function.attrs["global_symbol"])
    return lower_graph(translation.graph, symbol, translation.leaves, function.params)

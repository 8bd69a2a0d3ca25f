"""The operators that each TVM's ONNX converter takes, as data: one value for each converter."""

from __future__ import annotations

from dataclasses import dataclass, field

# Names in TVM's tables that mean operators of com.microsoft, which are rewritten.
CONTRIB = frozenset(
    {"Attention", "BiasGelu", "EmbedLayerNormalization", "FastGelu", "SkipLayerNormalization"}
)
# Operators that TVM 0.17's converter to Relay has, and TVM 0.27's to Relax has not, rewritings
# included. It is asked where Relax refuses, in an environment without Relay.
ONLY_RELAY = frozenset(
    {"DFT", "Loop", "Multinomial", "RandomNormal", "RandomNormalLike",
     "RandomUniform", "RandomUniformLike", "ReverseSequence", "Scan"}
)  # fmt: skip

# Operators whose cases TVM 0.17's converter computes wrongly, without a word: they are written as
# ONNX defines them, or refused.
WRONG_IN_RELAY = frozenset({"DFT", "Gelu", "LpPool"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """A frontend's ONNX converter: the operators that it takes, rewritten or not."""

    name: str
    takes: frozenset[str]
    # Whether its graphs are packed: quantised matrices then stay whole numbers.
    packs_weights: bool = False
    # Whether an input may have dimensions that are not known.
    symbolic: bool = True
    # The frontend to try where this one lacks an operator, and what that one takes besides.
    other: str = ""
    other_takes: frozenset[str] = field(default_factory=frozenset)


def relax_importer(takes: frozenset[str]) -> Importer:
    """TVM 0.27's converter to Relax, which has the operators `takes`."""
    return Importer(
        name="relax",
        takes=takes - CONTRIB,
        packs_weights=True,
        other="relay",
        other_takes=ONLY_RELAY,
    )


def relay_importer(takes: frozenset[str]) -> Importer:
    """TVM 0.17's converter to Relay, which has the operators `takes`, some of them wrongly."""
    return Importer(name="relay", takes=takes - CONTRIB - WRONG_IN_RELAY)

"""The Relax frontend, for apache-tvm 0.27."""

from boltgen.frontend.imported import ImportedModel, TensorSpec
from boltgen.frontend.relax.border import with_narrow_border
from boltgen.frontend.relax.derived_extents import with_computed_dimensions
from boltgen.frontend.relax.importer import import_model
from boltgen.frontend.relax.steps import (
    annotate,
    attach,
    of_tvm_alone,
    require_operators,
    watched,
)

__all__ = [
    "ImportedModel",
    "TensorSpec",
    "annotate",
    "attach",
    "import_model",
    "of_tvm_alone",
    "require_operators",
    "watched",
    "with_computed_dimensions",
    "with_narrow_border",
]

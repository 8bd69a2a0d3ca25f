"""The Relax frontend, for apache-tvm 0.27."""

from boltgen.frontend.relax.importer import ImportedModel, TensorSpec, import_model
from boltgen.frontend.relax.partition import annotate, attach, compile_regions
from boltgen.frontend.relax.patterns import placements, regions

__all__ = [
    "ImportedModel",
    "TensorSpec",
    "annotate",
    "attach",
    "compile_regions",
    "import_model",
    "placements",
    "regions",
]

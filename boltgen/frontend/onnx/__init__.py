"""Turn an ONNX file of any form into a model that TVM's converters take. IR-neutral."""

from boltgen.frontend.onnx.importers import Importer, relax_importer, relay_importer
from boltgen.frontend.onnx.prepare import Prepared, import_failure, prepare
from boltgen.frontend.onnx.read import naming, read_onnx
from boltgen.frontend.onnx.rewrites.recurrent import cell_of
from boltgen.frontend.onnx.shapes import (
    Ranges,
    Shapes,
    bind_extents,
    fix_shape,
    graph_inputs,
    ranges_of,
)

__all__ = [
    "Importer",
    "Prepared",
    "Ranges",
    "Shapes",
    "bind_extents",
    "cell_of",
    "fix_shape",
    "graph_inputs",
    "import_failure",
    "naming",
    "prepare",
    "ranges_of",
    "read_onnx",
    "relax_importer",
    "relay_importer",
]

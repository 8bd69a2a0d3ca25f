"""From an ONNX file as it is found to a model that TVM's converters take. IR-neutral."""

from boltgen.frontend.onnx.importers import Importer, relax_importer, relay_importer
from boltgen.frontend.onnx.prepare import Prepared, import_failure, prepare
from boltgen.frontend.onnx.read import naming, read_onnx
from boltgen.frontend.onnx.shapes import Shapes, bind_extents, fix_shape, graph_inputs

__all__ = [
    "Importer",
    "Prepared",
    "Shapes",
    "bind_extents",
    "fix_shape",
    "graph_inputs",
    "import_failure",
    "naming",
    "prepare",
    "read_onnx",
    "relax_importer",
    "relay_importer",
]

"""TVM without boltgen: its own schedules, as far as this TVM can."""

from __future__ import annotations

from benchmarks.gpu.model_build import build_alone
from boltgen.arch import arch_named
from boltgen.build.cache import Cache
from boltgen.build.toolchain import find_toolchain
from boltgen.frontend import relax
from boltgen.frontend.relax.normalise import normalise
from boltgen.runtime.device import provide_cuda_runtime
from boltgen.settings import settings_from
from models.onnx_graph import GraphBuilder
from models.parameters import PeriodicParameters


def test_a_product_that_tvm_would_give_tensor_cores_is_compiled_without():
    """Of more than 64 rows, columns and summands."""
    graph = GraphBuilder("product", parameters=PeriodicParameters(), dtype="float16")
    x = graph.gemm(graph.input("input", (128, 128)), "dense", features=128)
    graph.output(x, "output")
    settings, arch = settings_from(), arch_named("sm_80")
    provide_cuda_runtime(settings)
    tools, cache = find_toolchain(settings), Cache(settings.cache_dir)
    module = normalise(relax.import_model(graph.build()).module)
    _, sources = build_alone(module, arch, tools, cache, tensor_cores=False)
    text = "".join(path.read_text() for path in sources)
    assert "matmul" in text
    assert "mma" not in text

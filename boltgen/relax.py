"""boltgen for users of Relax: `mod = boltgen.relax.partition(mod)`, then `tvm.compile` as usual.

With `relax_pipeline=boltgen.relax.pipeline(target)`, what TVM computes is scheduled as it is by
`boltgen.compile`: pools and depthwise convolutions have a thread for each result, short rows of a
softmax or layer norm a warp. `export_library` writes a library that a GPU and the virtual GPU load.

The import lets TVM generate CUDA modules on any machine: with boltgen's nvcc, and where there is no
driver with the virtual GPU's.
"""

from __future__ import annotations

from boltgen.frontend.relay.versions import require_relax
from boltgen.runtime.device import provide_cuda_runtime
from boltgen.settings import settings_from

require_relax()
provide_cuda_runtime(settings_from())

from boltgen.runtime.link import export_library  # noqa: E402
from boltgen.runtime.relax_hooks import install_cuda_compiler, install_linker  # noqa: E402
from boltgen.runtime.relax_model import partition  # noqa: E402
from boltgen.runtime.schedules import pipeline  # noqa: E402

__all__ = ["export_library", "partition", "pipeline"]

install_cuda_compiler()
install_linker()

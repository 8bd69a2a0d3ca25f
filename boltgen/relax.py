"""boltgen for users of Relax: `mod = boltgen.relax.partition(mod)`, then `tvm.compile` as usual.

With `relax_pipeline=boltgen.relax.pipeline(target)`, what TVM computes is scheduled as it is by
`boltgen.compile`: pools and depthwise convolutions have a thread for each result or for a vector of
channels, short rows of a softmax or layer norm a warp. `export_library` writes a library that a GPU
and the virtual GPU load.

The import lets TVM generate CUDA modules on any machine: with boltgen's nvcc, and where there is no
driver with the virtual GPU's.
"""

from __future__ import annotations

from typing import Any

from boltgen.build.progress import Logged
from boltgen.device.asked_arch import asked_arch
from boltgen.device.choose import provide_cuda_runtime
from boltgen.frontend.relay.versions import require_relax
from boltgen.options import DEFAULT_ARCH, KernelOptions
from boltgen.options.option import chosen, takes
from boltgen.pipeline import PipelineOptions
from boltgen.settings import settings_from

require_relax()
provide_cuda_runtime(settings_from(), Logged())

from boltgen.tvm_build import relax_model  # noqa: E402
from boltgen.tvm_build.lowering.schedules import pipeline  # noqa: E402
from boltgen.tvm_build.relax_hooks import install_cuda_compiler, install_linker  # noqa: E402
from boltgen.tvm_build.relax_link import export_library  # noqa: E402

__all__ = ["export_library", "partition", "pipeline"]

install_cuda_compiler()
install_linker()


@takes(KernelOptions)
def partition(
    module: Any,
    *,
    arch: str = DEFAULT_ARCH,
    normalise: bool = True,
    options: KernelOptions | None = None,
    **overrides: Any,
) -> Any:
    """Return `module` with its matrix products and convolutions in kernels compiled for `arch`.

    The result compiles with plain `tvm.compile` for target cuda. `normalise` first makes the model
    FP16, or BF16, and NHWC inside; its inputs and outputs keep their dtypes and layouts. A module
    that was partitioned before may be so again: what has kernels keeps them. The keyword arguments
    are the fields of `boltgen.KernelOptions`, and come before `options`.

    Raises:
        ModelImportError: `module` is no `tvm.IRModule`, or went through LegalizeOps before.
        BoltgenError: an option has a value that it cannot have, or a kernel cannot be chosen or
            compiled.
    """
    given = PipelineOptions.of(chosen(KernelOptions, options, overrides))
    row = asked_arch(arch)
    return relax_model.partition(module, arch=row.name, normalise=normalise, options=given)

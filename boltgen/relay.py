"""boltgen for users of Relay: `mod = boltgen.relay.partition(mod, params)`, then `relay.build`.

To be imported before `tvm`: a TVM with Relay is linked with CUDA's libraries, and where there is no
GPU the virtual one takes their place.
"""

from __future__ import annotations

from typing import Any

from boltgen.build.progress import Logged
from boltgen.device.asked_arch import asked_arch
from boltgen.device.choose import provide_cuda_runtime
from boltgen.frontend.relay.versions import require_relay
from boltgen.options import DEFAULT_ARCH, KernelOptions
from boltgen.options.option import chosen, takes
from boltgen.pipeline import PipelineOptions
from boltgen.settings import settings_from

require_relay()
provide_cuda_runtime(settings_from(), Logged())

from boltgen.frontend.relay import codegen  # noqa: E402
from boltgen.frontend.relay.bind import Parameters  # noqa: E402
from boltgen.tvm_build import relay_model  # noqa: E402
from boltgen.tvm_build.relay_link import (  # noqa: E402
    export_library,
    install_cuda_compiler,
    install_linking,
)

__all__ = ["export_library", "partition"]

# For users who load a module that was partitioned elsewhere.
codegen.register()
install_cuda_compiler()
install_linking()


@takes(KernelOptions)
def partition(
    module: Any,
    params: Parameters | None = None,
    *,
    arch: str = DEFAULT_ARCH,
    normalise: bool = True,
    allow_nonfinite: bool = False,
    options: KernelOptions | None = None,
    **overrides: Any,
) -> Any:
    """Return `module` with its matrix products and convolutions in kernels compiled for `arch`.

    The result builds with plain `relay.build` for target cuda, for every executor, in this process
    or another one on this machine. `params` become constants. `normalise` first makes the model
    FP16 and NHWC inside; its inputs and outputs keep their dtypes and layouts. A module that was
    partitioned before may be so again: what has kernels keeps them. The keyword arguments are the
    fields of `boltgen.KernelOptions`, and come before `options`.

    Raises:
        ModelImportError: the module or its parameters cannot be used; the message says why.
        BoltgenError: an option has a value that it cannot have, or a kernel cannot be chosen or
            compiled.
    """
    given = PipelineOptions.of(chosen(KernelOptions, options, overrides))
    return relay_model.partition(
        module,
        params,
        arch=asked_arch(arch).name,
        normalise=normalise,
        allow_nonfinite=allow_nonfinite,
        options=given,
    )

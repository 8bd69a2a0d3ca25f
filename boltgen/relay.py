"""boltgen for users of Relay: `mod = boltgen.relay.partition(mod, params)`, then `relay.build`.

To be imported before `tvm`: a TVM with Relay is linked with CUDA's libraries, and where there is no
GPU the virtual one takes their place.
"""

from __future__ import annotations

from boltgen.frontend.relay.versions import require_relay
from boltgen.runtime.device import provide_cuda_runtime
from boltgen.settings import settings_from

require_relay()
provide_cuda_runtime(settings_from())

from boltgen.frontend.relay import codegen  # noqa: E402
from boltgen.runtime.relay_link import (  # noqa: E402
    export_library,
    install_cuda_compiler,
    install_linking,
)
from boltgen.runtime.relay_model import partition  # noqa: E402

__all__ = ["export_library", "partition"]

# For those who load a module that was partitioned elsewhere.
codegen.register()
install_cuda_compiler()
install_linking()

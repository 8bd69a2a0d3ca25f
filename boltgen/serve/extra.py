"""Check that the packages are there that only the server needs."""

from __future__ import annotations

import importlib
import sys
import warnings

from boltgen.errors import ServingError
from boltgen.installation import install_command


def require_server() -> None:
    """Import KServe.

    KServe's module of its server reads the command line of the process when it is imported; it is
    shown none.

    Raises:
        ServingError: the extra is not installed, or not as it is pinned.
    """
    # Imported by KServe's application, at the first request.
    warnings.filterwarnings("ignore", message="ORJSONResponse is deprecated")
    arguments, sys.argv = sys.argv, sys.argv[:1]
    try:
        importlib.import_module("kserve")
    except ImportError as error:
        raise ServingError(
            f"`boltgen serve` needs KServe's server ({error}): {install_command('relax', 'serve')}"
        ) from error
    finally:
        sys.argv = arguments

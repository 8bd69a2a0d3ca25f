"""Check that the packages for the server are installed."""

from __future__ import annotations

import importlib
import sys
import warnings

from boltgen.errors import ServingError
from boltgen.installation import install_command


def require_server() -> None:
    """Import KServe's server.

    On import KServe's module parses the command line of the process, so an empty one is shown to
    it.

    Raises:
        ServingError: the extra is not installed, or in the wrong version.
    """
    # KServe's application imports it at the first request.
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

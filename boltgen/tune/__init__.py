"""Choosing configurations: measurements and their database, search, the analytical model.

The package is also the function `boltgen.tune`: its name is the user's verb, and importing a
module of it binds that name to the package.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _CallableModule(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """See `boltgen.tuner.tune`."""
        # By name: what calls everything in this package lies outside of it.
        return importlib.import_module("boltgen.tuner").tune(*arguments, **options)


sys.modules[__name__].__class__ = _CallableModule

"""The command line: arguments in, calls of the library, lines and tables out."""

from __future__ import annotations

from boltgen.cli.program import app, main

__all__ = ["app", "main"]

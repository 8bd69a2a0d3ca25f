"""The command line: parses arguments, calls the library, and prints lines and tables."""

from __future__ import annotations

from boltgen.cli.program import app, main

__all__ = ["app", "main"]

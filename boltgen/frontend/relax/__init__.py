"""The Relax frontend."""

"""Kernel families: their configurations, which of them are legal, and their enumeration."""

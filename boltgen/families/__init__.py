"""Configurations: their definition, their legality, and their enumeration."""

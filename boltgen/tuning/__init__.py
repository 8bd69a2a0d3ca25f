"""Choosing configurations: measurements and their database, search, and the choice itself."""

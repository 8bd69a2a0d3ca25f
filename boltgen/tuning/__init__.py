"""Choose configurations: measurements and their database, search, and the final choice."""

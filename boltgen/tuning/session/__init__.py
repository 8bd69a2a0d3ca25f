"""A tuning session: what it tries next, and what it reports."""

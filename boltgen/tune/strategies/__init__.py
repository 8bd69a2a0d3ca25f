"""Search strategies: what to try next."""

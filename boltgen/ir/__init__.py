"""Values that describe computations; stdlib and numpy only."""

"""The database of measurements."""

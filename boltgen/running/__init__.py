"""Load and run compiled models."""

"""Linking, saving, loading and running compiled models."""

"""Pad channels so that kernels read whole vectors."""

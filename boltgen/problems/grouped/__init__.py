"""Grouped matmuls: groups of rows, each multiplied with its own matrix."""

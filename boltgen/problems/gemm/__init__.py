"""Matmuls: alone, in batches, with packed weights, or in pairs."""

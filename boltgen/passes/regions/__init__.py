"""Grow regions around matmuls and convolutions."""

"""Quantised tensors: moved to where integers are multiplied, and products of integers."""

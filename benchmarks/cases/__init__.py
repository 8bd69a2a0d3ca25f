"""Kernels, chains and models that tests and benchmarks run."""

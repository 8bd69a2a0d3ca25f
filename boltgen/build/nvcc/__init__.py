"""Compile translation units with nvcc, in parallel."""

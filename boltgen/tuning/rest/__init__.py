"""Tuning of TVM's own kernels."""

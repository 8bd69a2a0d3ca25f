"""Operators that TVM 0.27 computes on the host only, as kernels for a GPU."""

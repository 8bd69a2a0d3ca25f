"""Compiles, checks and times kernels, on a GPU or on the virtual one."""

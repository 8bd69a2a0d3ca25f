"""Compile, check and time kernels, on a GPU or on the virtual GPU."""

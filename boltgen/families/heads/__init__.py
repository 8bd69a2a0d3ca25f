"""Parts of kernels of attention, of any architecture. They are of no family."""

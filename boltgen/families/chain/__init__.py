"""Parts of kernels that compute several layers, of any architecture. They are of no family."""

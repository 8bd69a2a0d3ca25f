"""Parts of kernels for several layers, for any architecture; not a family itself."""

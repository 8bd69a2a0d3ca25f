"""Parts of kernels of the CUTLASS 2.x API, which multiply by mma.sync; not a family itself."""

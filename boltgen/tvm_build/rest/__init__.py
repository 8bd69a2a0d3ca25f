"""Schedule search for TVM's own kernels."""

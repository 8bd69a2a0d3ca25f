"""From a kernel's description to CUDA C++ text: pure functions to strings."""

"""Turn a kernel's description into CUDA C++ text: pure functions to strings."""

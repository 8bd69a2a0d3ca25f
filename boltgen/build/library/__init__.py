"""Libraries of kernels that are compiled beforehand."""

"""Libraries of precompiled kernels."""

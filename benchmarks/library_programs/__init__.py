"""Programs whose kernels are those of CUDA's libraries, on the virtual GPU."""

"""Programs that launch kernels of CUDA's libraries, on the virtual GPU."""

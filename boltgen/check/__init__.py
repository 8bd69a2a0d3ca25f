"""Execute the kernels of a compiled library on the virtual GPU before it ships."""

"""Parts of attention kernels, for any architecture; not a family itself."""

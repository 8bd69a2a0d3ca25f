"""The devices that run kernels: a GPU or the virtual GPU."""

"""PyTorch's programs, prepared for TVM's importer."""

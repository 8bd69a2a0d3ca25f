"""Recognise norms, and fuse them into matmuls."""

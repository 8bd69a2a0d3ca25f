"""Fuse anchors that share an input."""

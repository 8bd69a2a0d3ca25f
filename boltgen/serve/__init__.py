"""Serve compiled models by the Open Inference Protocol v2."""

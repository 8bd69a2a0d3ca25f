"""Serve compiled models by the Open Inference Protocol: requests in, sessions, answers out."""

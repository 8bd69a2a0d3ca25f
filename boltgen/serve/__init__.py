"""Compiled models behind the Open Inference Protocol: requests in, sessions, answers out."""

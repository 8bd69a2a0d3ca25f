"""Translate a graph IR to problems and epilogues."""

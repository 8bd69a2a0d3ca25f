"""Passes over views, row permutations and gathers."""

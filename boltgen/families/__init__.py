"""Configurations: what they are, which are legal, how they are enumerated."""

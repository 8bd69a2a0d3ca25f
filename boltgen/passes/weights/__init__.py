"""Quantised weights, and checks of constants."""

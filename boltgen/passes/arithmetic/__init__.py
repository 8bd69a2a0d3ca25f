"""Common subexpressions, constants and scale factors."""

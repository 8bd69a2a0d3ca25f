"""Predictions of times: the cost models, chosen by name and injected."""

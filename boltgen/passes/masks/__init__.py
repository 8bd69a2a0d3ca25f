"""Attention masks: causal, padding and window masks."""

"""Readers of outside data: numbers, files, JSON and archives, all within limits."""

"""Devices that time trials."""

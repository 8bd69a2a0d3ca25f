"""Depthwise convolutions of images."""

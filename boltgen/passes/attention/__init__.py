"""Recognise attention, its heads and its mask operands."""

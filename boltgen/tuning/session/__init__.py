"""Tuning sessions: the choice of the next trial, and the report."""

"""Results of the suite for GPUs: slices as they are written there, and the report made of them.

Arrow: slices -> JSON, a page with plots, and records for the tuner.
"""

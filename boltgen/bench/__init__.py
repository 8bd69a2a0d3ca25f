"""Results of the suite for GPUs: files as they are written there, and the report made of them.

Arrow: results -> JSON, a page with plots, and records for the tuner.
"""

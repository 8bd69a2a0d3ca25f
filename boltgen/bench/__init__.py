"""Results of the benchmark suite for GPUs: slices as they are measured, and the merged report.

Arrow: slices -> JSON, a page with plots, and records for the tuner.
"""

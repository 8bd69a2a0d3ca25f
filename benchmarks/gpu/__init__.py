"""The suite for a machine with a GPU: packed where there is none, run there, reported here.

plan -> bundle (items, sources) -> run_gpu_suite.py on the GPU machine -> results -> apply
"""

"""The suite for a machine with a GPU: packed where there is none, run there, reported here.

shapes -> bundle (items, kernels) -> run_gpu_suite.py on the GPU machine -> slices -> report
"""

"""Other people's kernels and ours on the virtual GPU: the same problem, the same data.

The race counts what programs do. It does not predict how fast a GPU runs them.
"""

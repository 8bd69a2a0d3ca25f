"""The NumPy semantics of the graph: what each operator computes."""

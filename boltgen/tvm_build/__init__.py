"""Build a library from a partitioned model with TVM."""

"""Libraries, launches, servers and oracles with which tests and benchmarks run something."""

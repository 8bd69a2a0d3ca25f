"""Products of rows in groups, each with the matrix of its group."""

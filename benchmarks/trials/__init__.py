"""A trial of one model in a process of its own: its account, its errors, and the table of all."""

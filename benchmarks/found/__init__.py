"""Models that nobody here wrote: where they are, how they are fetched, and one trial of one."""

"""Lower and schedule the operators that TVM computes."""

"""Replace operators that only kernels compute by operators of the IRs."""

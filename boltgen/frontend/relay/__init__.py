"""The Relay frontend, for TVM 0.14 to 0.19. Without such a TVM only `versions` can be imported."""

"""The Relay frontend, for TVM 0.14 to 0.19. Only `versions` can be imported without such a TVM."""

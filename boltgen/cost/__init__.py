"""The cost models, which predict times; a user chooses one by name."""

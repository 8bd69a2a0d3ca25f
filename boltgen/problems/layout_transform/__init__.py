"""Images in another memory order, type or number of channels."""

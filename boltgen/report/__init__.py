"""A compiled model as one page of HTML."""

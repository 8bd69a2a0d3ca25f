"""Group norms of images."""

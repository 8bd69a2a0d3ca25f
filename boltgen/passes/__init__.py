"""Passes over the neutral graph, each from a graph to a graph. Both frontends share them."""

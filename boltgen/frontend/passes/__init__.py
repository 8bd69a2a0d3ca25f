"""Passes over the neutral graph, each from a graph to a graph; both frontends share them."""

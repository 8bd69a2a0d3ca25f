"""The neutral graph that both frontends translate to, and its algebra of views."""

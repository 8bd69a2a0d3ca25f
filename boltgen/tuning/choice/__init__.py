"""Choose configurations, fusions and size tables from costs."""

"""Information about running queries: why a query emits nothing, the live plan, figures."""

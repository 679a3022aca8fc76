"""Information about plans and catalogs, for people: EXPLAIN, lineage, graphs, and why a query emits nothing."""

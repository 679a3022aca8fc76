"""Information about plans and catalogs for people: EXPLAIN, lineage, graphs, and reasons why a query emits nothing."""

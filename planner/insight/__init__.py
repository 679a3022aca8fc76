"""What plans and catalogs tell people: EXPLAIN, lineage, graphs, and what may hold a query up."""

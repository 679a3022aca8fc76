"""Aggregates: their entries in the catalog, and the folds that they become."""

"""Statements in, entities and rows out: engine, catalog, HTTP, rights and configuration."""

"""Sinks: SQL databases and HTTP."""

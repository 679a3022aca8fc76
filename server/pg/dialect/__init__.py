"""Statements in PostgreSQL's dialect become statements in ours."""

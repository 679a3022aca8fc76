"""Statements that declare a source or write a record: CREATE without a query, its WITH clause, and INSERT VALUES."""

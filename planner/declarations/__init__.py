"""Statements that declare a source or write a record: CREATE without a query, WITH, INSERT VALUES."""

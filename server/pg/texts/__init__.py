"""Texts of PostgreSQL's clients as values of other types, as PostgreSQL reads them."""

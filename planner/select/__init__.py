"""SELECT: what FROM, WHERE, PARTITION BY, GROUP BY, HAVING and the columns of a query mean."""

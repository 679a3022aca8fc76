"""SELECT: analyzes FROM, WHERE, PARTITION BY, GROUP BY, HAVING and the selected columns of a query."""

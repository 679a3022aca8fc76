"""Steps without state: their SQL, and the rows for which it fails."""

"""Top-n over rows that may be retracted: keeps all rows of each partition in order."""

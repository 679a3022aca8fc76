"""Changes of a database: our source `postgres` beside Debezium."""

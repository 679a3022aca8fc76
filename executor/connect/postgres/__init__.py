"""Change data capture from PostgreSQL: logical replication, with the decoder of pgoutput and Debezium's envelope."""

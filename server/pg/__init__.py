"""PostgreSQL's wire protocol, for psql, drivers and BI tools. `protocol.py` is the protocol's pure state machine,
`pg_connection.py` its socket; `pg_session.py` runs the statements. Messages:
https://www.postgresql.org/docs/15/protocol.html ."""

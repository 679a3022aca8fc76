"""PostgreSQL's wire protocol: for psql, drivers and BI tools. `protocol.py` is the pure machine, `pg_connection.py` its
socket; a statement goes through `pg_session.py`. Messages: https://www.postgresql.org/docs/15/protocol.html .
"""

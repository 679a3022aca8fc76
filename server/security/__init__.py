"""Authentication and authorization: users, rights, TLS, the host names that the server accepts."""

"""Who may do what, and how they show who they are: users, rights, TLS, the names that the server answers to."""

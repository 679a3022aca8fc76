"""The shell: it reads statements, runs them through `server.client` and prints the answers."""

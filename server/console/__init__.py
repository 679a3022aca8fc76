"""The web console: its files, and the routes that it needs beside those of the API. It has no rights of its own:
whatever a page does is a statement or a request that any client could send, with the rights of its user."""

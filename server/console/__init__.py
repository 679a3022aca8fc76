"""The web console: its files, and the routes that it needs in addition to those of the API. It has no rights of its
own: each action of a page is a statement or a request that any client could send, with the rights of its user."""

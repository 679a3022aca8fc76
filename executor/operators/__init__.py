"""How the steps of a plan run: each operator takes a batch of changes and gives a batch of changes."""

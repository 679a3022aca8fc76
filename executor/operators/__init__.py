"""The operators that execute the steps of a plan. Each one takes a batch of changes and returns a batch of changes."""

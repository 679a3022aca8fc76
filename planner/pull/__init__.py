"""Pull queries, and statements that are planned like them."""

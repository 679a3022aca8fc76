"""Files in folders and object stores, which connectors read and write, and their errors."""

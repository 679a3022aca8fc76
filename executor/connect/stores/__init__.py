"""Files in folders and object stores: what connectors read and write, and the errors of it."""

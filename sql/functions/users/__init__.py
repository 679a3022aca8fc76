"""Functions that users wrote in Python: read, checked, called, and ended when they take too long."""

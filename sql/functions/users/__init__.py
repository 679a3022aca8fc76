"""User-defined functions in Python: read, checked, called, and ended when they exceed their time limit."""

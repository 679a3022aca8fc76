"""The checks of `millstream doctor`."""

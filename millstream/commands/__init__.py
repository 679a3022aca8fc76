"""The commands of `millstream`, one module each. They import their modules when they run."""

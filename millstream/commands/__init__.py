"""The commands of `millstream`, a module each. They import their modules when they run."""

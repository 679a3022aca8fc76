"""The commands of `millstream`, a module each. They import what they need when they run."""

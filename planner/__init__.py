"""Turns statements into plans: names, types, keys, optimizer rules, and the steps of a plan. It does no I/O."""

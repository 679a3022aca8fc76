"""From statements to plans: names, types, keys, optimizer rules, and the steps of a plan. Does no I/O."""

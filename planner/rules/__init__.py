"""Rewrites of the analyzed plan, one per file; `optimize.RULES` defines their order."""

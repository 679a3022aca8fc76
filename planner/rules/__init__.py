"""Rewrites of the analyzed plan, a file each; `optimize.RULES` is their order."""

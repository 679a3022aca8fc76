"""The groups of an aggregate: how they are found, where their states wait, and how calls change them."""

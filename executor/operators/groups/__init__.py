"""The groups of an aggregate: how they are found, where their states are kept, and how calls change them."""

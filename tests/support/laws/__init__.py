"""Random statements over random data, and what a batch query answers to them: the material of tests/properties.

Everything of a case comes from one seed. Nothing here uses the planner: `reference` SQL is written beside each piece of
ksqlDB's SQL that is generated, so that a mistake of the planner cannot be in both.
"""

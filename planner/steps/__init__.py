"""The steps of plans: each module has a node of the analyzed plan, its step of the physical plan, and every method that
others call on them. Code outside walks plans without a list of steps.
"""

"""The steps of plans: a module per idea, with its node of the analyzed plan, its step of the physical plan, and all
that anybody asks of either. The rest of the house walks plans without knowing which steps there are.
"""

"""Choosing a program out of an e-graph: candidates, their predicted cost, and the cheapest set of calls that covers
the roots.
"""

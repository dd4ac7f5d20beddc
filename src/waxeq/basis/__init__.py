"""The basis: the closed set of meanings that every operator and every kernel is written in.

`scalar` holds the scalar functions, `heads` the constructors over named axes, `evaluate` their value on arrays.
"""

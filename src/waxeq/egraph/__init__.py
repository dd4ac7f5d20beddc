"""Equality saturation: terms in, every equal term out. Only `engine` and `rules` know egglog."""

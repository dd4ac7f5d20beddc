"""Sizes that are not known yet: dims with ranges, sizes as functions of them, plans that hold for many sizes."""

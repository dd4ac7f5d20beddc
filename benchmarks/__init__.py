"""Measurements of waxeq against what it was given and against its peers: `python -m benchmarks`."""

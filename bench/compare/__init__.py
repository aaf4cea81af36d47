"""Comparison of the checkout with an older commit: `python -m bench.compare`."""

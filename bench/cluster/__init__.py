"""Measurements of three brokers: one broker stops, returns, or all are idle; `python -m bench.cluster`."""

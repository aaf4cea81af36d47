"""Measurements of three brokers (`python -m bench.cluster`): one broker stops or returns, or all brokers are idle."""

"""What three brokers do when one of them goes, comes back, or has nothing to do; `python -m bench.cluster`."""

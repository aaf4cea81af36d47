"""The time that one client's request keeps all other clients of a broker waiting: `python -m bench.stalls`."""

"""Metrics of every part: a part counts in plain integers, and a collector reads the integers on request."""

"""Measurements. Each module is a program that prints what docs/benchmarks.md shows."""

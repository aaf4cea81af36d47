"""Measurements. Each module is a program that prints figures for docs/benchmarks.md."""

"""Measurements. Each module is a program that prints figures of docs/benchmarks.md."""

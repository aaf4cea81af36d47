"""Programs that measure and check a log from outside. No broker, client or pipeline imports this package.

- `perf`: the workloads of `barnabas perf`.
- `clickstream`: synthetic events of a web site, with the true figures that reports on them must find.
- `history`: a checker for lost, duplicated and reordered records.
"""

"""Programs that measure and check a log from outside. No broker, client or pipeline imports this package.

- `perf`: the workloads of `barnabas perf`.
- `clickstream`: synthetic events of a web site, with the expected figures for reports on them.
- `orders`: synthetic changes of a database table, with the final rows.
- `history`: a checker for lost, duplicate and reordered records.
"""

"""The workloads of the Kafka paper and of LinkedIn's benchmark article, for any broker that speaks Kafka's protocol.

Each workload consists of a job (a frozen dataclass that can be sent to another process) and a function that runs the
job and measures it with a meter. Complete runs add topics, processes and reports. The package prints nothing: the
command `barnabas perf` prints the results.

Reading order: `meter` (the measurement); the workloads `produce_workload`, `pipelined_workload`, `consume_workload` and
`latency_workload`; `worker_processes` and `run_context`; the complete runs `produce_run`, `consume_run` and
`paired_runs`; `report`.

All figures have these properties:

- The clock starts after the payloads exist. It includes encoding, sending, receiving and decoding.
- The clock of a producer stops when all records are acknowledged. The run then checks that the log has all records.
- The producer and the consumer of a run never share a process, so they never share an interpreter lock.
"""

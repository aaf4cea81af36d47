"""The workloads of the paper and of the article, to be run against any broker of Kafka's protocol.

Each workload is a job (what to do, a frozen dataclass that can be sent to another process) and a function that does
it under a meter; whole runs put topics, processes and reports around them. Nothing here knows a terminal: the command
`barnabas perf` shows what these functions return.

Reading order: `meter` (what is measured); the workloads `produce_workload`, `pipelined_workload`, `consume_workload`
and `latency_workload`; `worker_processes` and `run_context`; the whole runs `produce_run`, `consume_run` and
`paired_runs`; `report`.

What is promised of every figure:

- payloads are made before the clock starts; what is encoded, sent, received and decoded is not;
- the clock of a producer stops when all is acknowledged, and the log is then asked whether it has all of it;
- producer and consumer of one run never share a process, and so never an interpreter lock.
"""

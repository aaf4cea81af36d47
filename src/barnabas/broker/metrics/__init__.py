"""The metrics of a broker. A thread reads them (`barnabas.net.status_server`), and the event loop never waits for it.

Each part of the broker counts in its own integers. The modules here read these integers from another thread, without
locks, by three rules:

- Read a value that is replaced as a whole (the metadata image, the offsets of a log) once.
- Copy a dict that the event loop changes before iterating over it.
- Of two values that are compared, first read the one that must not be ahead.

The names are those of kafka_exporter and Strimzi's JMX exporter if these have the metric. All other names begin with
`barnabas_`. `docs/reference/metrics.md` lists all metrics.
"""

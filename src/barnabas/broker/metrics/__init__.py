"""The metrics of a broker.

A separate thread collects them (`barnabas.net.status_server`), and the event loop never waits for it. Each component of
the broker counts in its own integers. The modules of this package read these integers from another thread without
locks, by three rules:

- Read an object that is replaced as a whole (the metadata image, the offsets of a log) only once.
- Copy a dict that the event loop changes before iterating over it.
- Before comparing two values, first read the value that must not be larger.

If kafka_exporter or Strimzi's JMX exporter has a metric, its name is used. All other names begin with `barnabas_`.
`docs/reference/metrics.md` lists all metrics.
"""

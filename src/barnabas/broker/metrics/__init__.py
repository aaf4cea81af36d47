"""The metrics of a broker. A thread reads them (`barnabas.net.status_server`), and the event loop never waits for it.

Each part of the broker counts in plain integers of its own. The modules here read these integers, from another thread
and without locks, by three rules:

- a value that is replaced as a whole (the metadata image, the offsets of a log) is read once;
- a dict that the event loop changes is copied before it is iterated over;
- of two values that are compared, the one that must not be ahead is read first.

The names are those of kafka_exporter and of Strimzi's JMX exporter where these have the metric, and begin with
`barnabas_` elsewhere. `docs/reference/metrics.md` lists all of them.
"""

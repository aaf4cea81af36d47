"""Log compaction: what it does to records, on one thread; and the whole cleaner beside Apache Kafka's."""

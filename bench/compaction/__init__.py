"""Log compaction: the codec's operations on one thread, and the complete cleaner beside Apache Kafka's."""

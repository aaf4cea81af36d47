"""Log compaction: the operations of the codec on one thread, and the complete cleaner compared with Apache Kafka's
cleaner."""

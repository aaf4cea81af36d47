"""The settings of brokers, topics and groups.

| module | |
|---|---|
| `static` | the declarations of a broker's settings |
| `loading` | reads these settings from file, environment and flags |
| `dynamic` | values that are changed while the broker runs, and stored in the metadata store |
| `in_force` | the effective value of each setting, and its source |
| `topic_table` | the declarations of all topic settings |
| `topic_config` | the settings of a topic over the defaults of the broker |
| `resources` | the settings of each resource type, for requests that describe or change settings |
| `rules` | the valid values of a setting |
| `kafka_names` | Kafka's settings that have another name in Barnabas, or no effect |
| `unused` | Kafka's settings that are stored without effect |
"""

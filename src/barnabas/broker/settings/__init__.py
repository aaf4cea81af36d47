"""The settings of brokers, topics and groups.

| module | |
|---|---|
| `static` | the declarations of a broker's settings |
| `loading` | their values from file, environment and flags |
| `dynamic` | values that are changed while the broker runs, and stored in the metadata store |
| `in_force` | both together: the effective value and its source |
| `topic_table` | the declarations of all topic settings |
| `topic_config` | the settings of a topic over the defaults of the broker |
| `resources` | the settings as administrators see and change them |
| `rules` | the valid values of a setting |
| `kafka_names` | Kafka's settings that exist here under other names, or not at all |
| `unused` | Kafka's settings that are stored without effect |
"""

"""The settings of brokers, topics and groups.

- `static` declares the static settings of a broker, and `loading` reads them from file, environment and flags.
- `dynamic` contains the settings that are changed while the broker runs, and stored in the metadata store.
- `in_force` determines the effective value of each broker setting, and its source.
- `topic_table` declares the topic settings, and `topic_config` combines them with the broker's defaults.
- `resources` describes and changes settings on behalf of administrators.
- `rules` checks the values of settings.
- `kafka_names` translates Kafka's settings that have another name in Barnabas.
- `unused` declares Kafka's settings that are stored but have no effect.
"""

"""The settings of brokers, topics and groups.

| module | |
|---|---|
| `static` | a broker's settings from its file, the environment and flags |
| `dynamic` | those that are changed while it runs, and kept in the tree |
| `in_force` | both together: which value counts, and where it comes from |
| `topic_table` | every setting that a topic can have |
| `topic_config` | what a topic's settings, over the broker's, come to |
| `resources` | all of them as administrators see and change them |
| `rules`, `sources` | which values a setting can have; where its value comes from |
| `unused` | Kafka's settings that are kept, and have no effect here |
"""

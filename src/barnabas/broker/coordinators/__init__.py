"""The runtime of replicated state machines: one for each partition of an internal topic, on the partition's leader.

`CoordinatorRuntime` finds the `CoordinatorShard` of a key. A shard belongs to one partition: `ShardLog` appends its
records, and `replay_log` loads them. The state machines are pure (`barnabas.state_machine`).
"""

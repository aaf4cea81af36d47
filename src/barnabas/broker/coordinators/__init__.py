"""The runtime of replicated state machines: each partition of an internal topic has one, on the broker that leads it.

`CoordinatorRuntime` finds the `CoordinatorShard` of a key. A shard is one partition: `ShardLog` appends its records,
and `replay_log` loads them. The machines are pure (`barnabas.state_machine`).
"""

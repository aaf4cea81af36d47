"""The runtime of replicated state machines. Each partition of an internal topic has one, on the partition's leader.

`CoordinatorRuntime` finds the `CoordinatorShard` of a key. A shard belongs to one partition. `ShardLog` appends the
shard's records, and `replay_log` loads them. The state machines do no I/O (`barnabas.state_machine`).
"""

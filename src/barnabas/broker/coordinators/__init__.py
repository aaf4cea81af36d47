"""The runtime of replicated state machines: each partition of an internal topic has one, on the broker that leads it.

`CoordinatorRuntime` is the way in; `CoordinatorShard` is one partition; `ShardLog` appends its records; `replay` loads
them. The machines are pure (`barnabas.state_machine`).
"""

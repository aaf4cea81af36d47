"""The tree of a cluster: a session with an ensemble of ZooKeeper servers, and such servers on this machine.

`config` says where the servers are, `metadata_store` holds `ZooKeeperMetadataStore`, `servers` starts servers out of
jars. Nothing outside of this package knows kazoo. Import from those modules: this one loads none.
"""

"""The node-ipam controller: each node has its own part of the cluster's pod ranges."""

"""Instances in network namespaces, with links, addresses and routes of the kernel."""

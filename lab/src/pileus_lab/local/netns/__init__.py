"""Instances in network namespaces: links, addresses and routes of the kernel's own."""

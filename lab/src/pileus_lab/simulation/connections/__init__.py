"""Connections of a manager to its API server and cloud, with injected faults."""

"""Deletes nodes whose instances are deleted, with safeguards, and taints stopped ones."""

"""Gives every instance the SSH keys that the cluster's operators want, and takes withdrawn ones."""

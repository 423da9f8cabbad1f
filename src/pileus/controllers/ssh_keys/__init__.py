"""Gives every instance the desired SSH keys, and removes withdrawn ones."""

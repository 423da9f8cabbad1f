"""Invariants as small named functions: some for every step, some for the end."""

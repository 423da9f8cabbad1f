"""The story of one object: what is wanted, what is, what is in between, and who sees to it."""

"""The local cloud as values: a frozen state, and operations with pure transitions."""

"""The local cloud as values: a frozen state, and operations that know their pure transitions."""

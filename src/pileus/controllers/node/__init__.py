"""Initializes new nodes: provider ID, addresses, labels; then removes the taint."""

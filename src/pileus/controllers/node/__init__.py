"""A new Node gets its provider ID, addresses and zone labels; then its taint goes."""

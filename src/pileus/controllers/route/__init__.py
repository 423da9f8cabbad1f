"""The route controller: each node's pod range has a route in the cloud."""

"""Machines as the node plugin sees them: devices, mounts and commands, without a kernel."""

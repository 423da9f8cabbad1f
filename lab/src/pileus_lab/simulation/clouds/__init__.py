"""Clouds that can be simulated: the interface, and the local one."""

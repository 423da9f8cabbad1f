"""Clouds that can be simulated: what they must be able to do, and the local one."""

"""Puts the program together: configuration, assembly, start and stop."""

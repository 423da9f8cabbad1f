"""Runs reconcilers; knows no particular one."""

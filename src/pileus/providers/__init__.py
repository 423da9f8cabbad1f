"""Clouds, one folder each; strangers to one another, and to Kubernetes."""

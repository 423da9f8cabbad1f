"""Which Pileus this is, and which Kubernetes it speaks for."""

PILEUS = "0.1.0"
KUBERNETES = "v1.37.1"
"""The release of the Go framework whose flags, metrics and events we keep."""

"""An embedded Kubernetes API server: the real one's contract for what we use, in one process."""

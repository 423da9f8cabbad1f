"""Kubernetes as a controller sees it: client, credentials, informers. Knows nothing of clouds."""

"""What surrounds the managers of a simulation: an API server, a cloud, kubelets, users."""

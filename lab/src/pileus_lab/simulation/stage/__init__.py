"""What stands around the managers of a simulation: an API server, a cloud, kubelets, people."""

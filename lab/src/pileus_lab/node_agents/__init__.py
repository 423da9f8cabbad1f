"""Kubelets for the instances of the local cloud: nodes that register and stay alive."""

"""The laboratory: an embedded Kubernetes API server, a local cloud, a demo and a simulation.

It imports the product, `pileus`; the product never imports it.
"""

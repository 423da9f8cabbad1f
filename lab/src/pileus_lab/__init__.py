"""The laboratory: an embedded Kubernetes API server, a local cloud, a demo and a simulation.

It imports the product, `pileus`; the product never imports it.
"""

from pileus import __version__

__all__ = ["__version__"]

"""The HTTPS port: health, metrics, configuration; who may see what."""

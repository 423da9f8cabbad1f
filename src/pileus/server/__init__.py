"""The HTTPS port: health, metrics, configuration, authentication and authorization."""

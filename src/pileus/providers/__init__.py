"""Providers that come with the product. Each is imported only if `--cloud-provider` names it."""

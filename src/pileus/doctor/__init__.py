"""Checks of a cluster and its cloud: `observe` reads, `diagnose` judges. Nothing is changed."""

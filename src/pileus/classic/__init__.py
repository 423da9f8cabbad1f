"""The provider interface of the Go framework with Python names, for ported providers.

A ported provider implements `classic.interface`. `classic.adapter` turns it into a `Cloud` and
calls its methods at the same moments and in the same order as the Go framework.
"""

"""The provider interface of the Go framework in Python names, for providers that are ported.

A ported provider implements `classic.interface`; `classic.adapter` turns it into a `Cloud`, and
calls its methods when and in the order that the Go framework would.
"""

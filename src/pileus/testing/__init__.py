"""Fakes, virtual time and the conformance suite, for our tests and for those of providers."""

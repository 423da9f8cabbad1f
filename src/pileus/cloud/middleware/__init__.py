"""Middleware: what Pileus puts around the methods of every provider.

`methods` is the table of all methods of the contract. `stack` composes, once per method, batching,
call budget, fence, metrics, deadline and answer check into one function around the provider's own.
"""

"""What is put around any provider: measures, limits, guards. Providers stay unaware.

    callers ▶ batching ▶ dry run ▶ budget ▶ fence ▶ measures ▶ deadline ▶ guard ▶ faults ▶ provider

`stack.stacked` composes them in this order; each can be used alone.
"""

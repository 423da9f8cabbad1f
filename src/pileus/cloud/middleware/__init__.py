"""What is put around any provider: measures, limits, guards. Providers stay unaware.

    callers ▶ batching ▶ budget ▶ fence ▶ measures ▶ deadline ▶ guard ▶ faults ▶ provider

`stack.stacked` composes them in this order; each can be used alone. `read_only` is put beneath
them where nothing may be changed.
"""

"""HTTP/1.1 over asyncio, as the manager needs it."""

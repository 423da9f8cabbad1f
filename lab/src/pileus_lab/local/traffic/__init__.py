"""Traffic on loopback addresses: balancers that forward, instances that answer."""

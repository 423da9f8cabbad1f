"""Services of type LoadBalancer get a balancer in the cloud, and keep it as they want it."""

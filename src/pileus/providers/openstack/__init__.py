"""OpenStack: Nova machines, Octavia load balancers, Neutron routes, Cinder volumes."""

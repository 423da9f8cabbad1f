"""A provider for a cloud like EC2: instances, network load balancers with target groups, routes.

model.py      the cloud itself, in memory: a pure function per request
client.py     pages, and one place where all requests leave
instances.py  nodes are instances
plan.py       what a load balancer lacks, decided without I/O
balancers.py  the requests of each change
routes.py     one route in every table
connect.py    the provider: what it declares, and its entry point
harness.py    the cloud as the conformance laws fill, break and inspect it
simulated.py  the cloud as `pileus simulate` runs it
"""

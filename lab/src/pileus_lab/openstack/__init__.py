"""A model of OpenStack: Nova, Neutron, Octavia, Cinder, at the level of single requests.

    api = ModelApi()
    network, subnet = api.add_network("private", "10.0.0.0/24")
    server = api.add_server("node-1", network)
    client = Client(api)                      # of pileus.providers.openstack.api

`handle` is pure: it takes a state and a `Call`, and returns the next state and the answer. It is
checked against real OpenStack: tests/openstack/test_model.py.
"""

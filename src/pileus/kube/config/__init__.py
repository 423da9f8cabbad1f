"""Which API server to talk to, and as whom: kubeconfig files, pods, service accounts.

flags, environment ──choose──▶ kubeconfig | in_cluster | bare server
                                      │
     authorization (token, token_file, exec, …) + tls + impersonation ──▶ Access
"""

"""Which API server to use, with which credentials: kubeconfig files, pods, service accounts.

flags, environment ──choose──▶ kubeconfig | in_cluster | bare server
                                      │
     authorization (token, token_file, exec, …) + tls + impersonation ──▶ Access
"""

"""How the manager is installed: RBAC rules, Deployment, DaemonSet, chart, Kustomize base, unit.

    flags ──▶ Choice ──objects──▶ Kubernetes objects (plain dicts) ──▶ YAML, chart, Kustomize base

Everything is generated from one function, `pileus.deployment.manifests.objects`.
"""

"""The errors that end the program, with their exit codes."""


class CommandFailed(Exception):
    """The command cannot be carried out, such as with a wrong configuration. Exit code 1."""


class Fatal(Exception):
    """The program cannot start here: no cloud or no API server. Exit code 255."""


CHECK_SERVER = (
    "check that the API server runs at this address: kubectl cluster-info. "
    "--kubeconfig=FILE and --context=NAME choose another cluster"
)
CHECK_CA = (
    "compare the CA of the kubeconfig with that of the cluster (certificate-authority-data; "
    "in a pod: kubectl get configmap kube-root-ca.crt --namespace=NAMESPACE --output=yaml), and "
    "renew the kubeconfig. "
    "--kubeconfig=FILE and --context=NAME choose another cluster"
)


class NoApiServer(Fatal):
    """The API server did not become healthy in time, or cannot be reached."""

    def __init__(self, message: str, *, untrusted: bool = False) -> None:
        super().__init__(message)
        self.untrusted = untrusted
        """Whether its certificate is not trusted."""

    @property
    def fix(self) -> str:
        return CHECK_CA if self.untrusted else CHECK_SERVER

"""The kinds of objects that Understudy uses in Kubernetes, and their paths."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote


@dataclass(frozen=True)
class Resource:
    """One kind of object."""

    name: str
    plural: str
    group: str = ""
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """Return ``apiVersion`` of its manifests."""
        return f"{self.group}/v1" if self.group else "v1"

    def path(self, namespace: str, name: str = "") -> str:
        """Return the path of one object, or of all in a namespace."""
        base = f"/apis/{self.group}/v1" if self.group else "/api/v1"
        where = f"/namespaces/{quote(namespace)}" if self.namespaced else ""
        return f"{base}{where}/{self.plural}" + (f"/{quote(name, safe='')}" if name else "")


CONFIG_MAP = Resource("ConfigMap", "configmaps")
LEASE = Resource("Lease", "leases", "coordination.k8s.io")
POD = Resource("Pod", "pods")
SECRET = Resource("Secret", "secrets")
SERVICE = Resource("Service", "services")
DEPLOYMENT = Resource("Deployment", "deployments", "apps")
EVENT = Resource("Event", "events")
ACCESS_REVIEW = Resource(
    "SelfSubjectAccessReview", "selfsubjectaccessreviews", "authorization.k8s.io", namespaced=False
)

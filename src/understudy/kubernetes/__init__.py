"""What speaks to the API server of a Kubernetes cluster, and what builds manifests for it.

No election and no register: the backend in `ha.backends.kubernetes` builds these on this room.
`pods`, `templates` and other builders of manifests are pure: configuration in, JSON out.
"""

"""The control plane of this pytest process."""

from tests.kubernetes.control_plane import kubernetes

__all__ = ["kubernetes"]

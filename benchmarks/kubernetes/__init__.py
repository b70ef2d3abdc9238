"""What high availability on Kubernetes costs, on a real API server."""

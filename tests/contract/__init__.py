"""One suite a protocol, run over every implementation."""

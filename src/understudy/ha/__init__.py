"""AGREES. What several processes must agree on, and what survives all of them.

Here live the register and what is written once above it: stamped documents, the registry,
election and retrieval, the stores, the blobs. Modules here know neither Spark nor the wire, and a
backend below ``backends`` knows only the register.
"""

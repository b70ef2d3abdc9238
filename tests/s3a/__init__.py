"""Checkpoints that Spark itself writes to S3."""

"""The driver: the attempt of a job, its context, checkpoints, streaming queries and safe writes."""

"""A module beside the script, with a job of its own."""

from typing import Any


def double(number: int) -> int:
    return 2 * number


def job(ctx: Any) -> list[int]:
    """Be a job."""
    return sorted(ctx.spark.sparkContext.parallelize([1, 2]).map(double).collect())

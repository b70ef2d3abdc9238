"""An application with two jobs: the second one needs what the first one has returned."""

import understudy


@understudy.job
def count(ctx: understudy.JobContext, size: int) -> int:
    """Count rows that Spark makes up."""
    return ctx.spark.range(size).count()


@understudy.job
def report(ctx: understudy.JobContext, rows: int) -> str:
    """Say how many rows there are."""
    return f"{rows} rows"


rows = count.run(1_000_000).value
print("result:", report.run(rows).value)

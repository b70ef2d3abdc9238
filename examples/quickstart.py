import time

import understudy

env = understudy.get_environment()
DAYS = 20


def load(ctx, target):  # a job: a plain function
    sales = ctx.spark.range(1000 * DAYS).selectExpr(f"id % {DAYS} AS day", "id AS amount")
    sales.write.mode("overwrite").parquet(target)
    return {"rows": sales.count()}  # saved: no failover loses it


def sum_up(ctx, source):
    sales, sums = ctx.spark.read.parquet(source), {}
    for day in range(DAYS):
        sums[f"day {day + 1}"] = sales.where(f"day = {day}").groupBy().sum("amount").first()[0]
        ctx.log.info("day %d of %d", day + 1, DAYS)
        time.sleep(1)  # slow on purpose: time to kill something
    return sums


loaded = env.execute(load, "out/sales").value
print("loaded", loaded["rows"], "rows")
sums = env.execute(sum_up, "out/sales").value
print("sold", sum(sums.values()), "on", len(sums), "days")

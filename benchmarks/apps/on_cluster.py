"""An application of jobs that count once on a Spark cluster; main notes how long each took."""

import json
import sys
import time

import understudy


def count(ctx, asked):  # type: ignore[no-untyped-def]
    """Count on executors; return how long after ``asked`` the function began, and had counted."""
    began = time.time()
    ctx.spark.range(1000).count()
    return {"began": began - asked, "counted": time.time() - asked}


env = understudy.get_environment()
env.execute(count, time.time(), name="until a driver is warm")
for number in range(int(sys.argv[1])):
    time.sleep(float(sys.argv[2]))
    result = env.execute(count, time.time(), name=f"count {number}")
    with open("counts.jsonl", "a") as file:
        print(json.dumps(result.value), file=file, flush=True)

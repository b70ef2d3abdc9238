"""Two jobs, one after the other: each tells its JVM, what it finds there, and leaves its mark."""

import json
from pathlib import Path
from typing import Any

import understudy
from understudy import JobContext

MARK = "left.by.a.job"


def look(ctx: JobContext) -> dict[str, Any]:
    jvm: Any = ctx.spark.sparkContext._jvm
    seen = {
        "jvm": jvm.java.lang.ProcessHandle.current().pid(),
        "context": ctx.spark.sparkContext.applicationId,
        "found": jvm.java.lang.System.getProperty(MARK),
    }
    jvm.java.lang.System.setProperty(MARK, ctx.name)
    return seen


env = understudy.get_environment()
seen = [env.execute(look, name=name).value for name in ("first", "second")]
Path("seen.json").write_text(json.dumps(seen))

"""``python -m tests.s3a``: real Spark keeps checkpoints on S3, through ``hadoop-aws``.

The S3 is a moto server; the jars (690 MB) are fetched by Maven, for the Hadoop that PySpark has,
and stay in ``out`` with ``--keep``. Prints ``1 passed, 0 failed``, or what was expected and found.
"""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.journeys import harness
from tests.journeys.harness import COMMAND, Run
from tests.support.s3 import BUCKET, Moto
from tests.versions import ground

JARS = ground.ROOT / "out" / "s3a"
POM = """<project><modelVersion>4.0.0</modelVersion>
<groupId>none</groupId><artifactId>none</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-aws</artifactId>
<version>{version}</version></dependency></dependencies></project>
"""
STEPS, FILES, ROWS = 3, 6, 100
"""As the application has them."""

ADDED = sum(range(1, STEPS + 1))
EXPECTED = {
    "total": sum(range(ROWS)) + ROWS * ADDED,
    "rows": [FILES * ROWS, FILES * ROWS],
    "attempts": [2, 2],
    "computed": ["1 1", "2 1", "3 2"],
    "scheme": ["s3a://", "s3a://"],
    "left": [],
}


def hadoop() -> str:
    """Return the version of Hadoop that PySpark brings."""
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    (jar,) = Path(spec.origin).parent.glob("jars/hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def jars() -> list[Path]:
    """Return what brings ``s3a://``, fetched once."""
    if not any(JARS.glob("hadoop-aws-*.jar")):
        JARS.mkdir(parents=True, exist_ok=True)
        (JARS / "pom.xml").write_text(POM.format(version=hadoop()))
        line = ["mvn", "-q", "-B", "-f", str(JARS / "pom.xml"), "dependency:copy-dependencies"]
        subprocess.run([*line, f"-DoutputDirectory={JARS}"], check=True)
    return sorted(JARS.glob("*.jar"))


def travel(place: Path, server: Moto) -> dict[str, Any]:
    """Run the application; return what there is to see of it."""
    conf = {
        "spark.jars": ",".join(map(str, jars())),
        "spark.sql.shuffle.partitions": "2",
        "spark.hadoop.fs.s3a.endpoint": server.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }
    options = [part for item in conf.items() for part in ("--conf", "=".join(item))]
    options += ["-D", f"execution.checkpointing.dir=s3://{BUCKET}/checkpoints"]
    options += ["-D", f"io.tmp.dirs={place / 'tmp'}", "--slots", "1", "--master", "local[2]"]
    script = shutil.copy(Path(__file__).with_name("app.py"), place / "app.py")
    line = [*COMMAND, "run-application", "--json", *options, str(script), str(place / "found.json")]
    run = Run(line, place, place / "stderr.log", server.variables())
    try:
        assert run.finish(900) == 0, run.story()
    finally:
        harness.end(run)
    found: dict[str, Any] = json.loads((place / "found.json").read_text())
    found["computed"] = run.lines("computed.txt")
    found["scheme"] = [one[: len("s3a://")] for one in run.lines("locations.txt")]
    found["left"] = left(server)
    return found


def left(server: Moto) -> list[str]:
    """Return what is in the bucket."""
    import s3fs

    variables = server.variables()
    bucket = s3fs.S3FileSystem(
        key=variables["AWS_ACCESS_KEY_ID"],
        secret=variables["AWS_SECRET_ACCESS_KEY"],
        endpoint_url=server.endpoint,
    )
    return sorted(bucket.find(BUCKET))


def main(arguments: list[str]) -> int:
    """Travel; return 1 if anything is not as it should be."""
    with tempfile.TemporaryDirectory(prefix="understudy-s3a-") as place:
        server = Moto(Path(place) / "moto.log")
        try:
            found = travel(Path(place), server)
        finally:
            server.end()
            if "--keep" not in arguments:
                shutil.rmtree(JARS, ignore_errors=True)
    right = found == EXPECTED
    if not right:
        print(f"expected {EXPECTED}, found {found}", file=sys.stderr)
    print("1 passed, 0 failed" if right else "0 passed, 1 failed")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

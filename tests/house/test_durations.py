import json
from pathlib import Path

from tests.support import durations


def test_the_table_adds_up_parts_and_names_the_slowest(tmp_path: Path) -> None:
    for number, (part, seconds, tests) in enumerate(
        [("unit", 60.0, {"a": 1.5, "b": 0.5}), ("spark", 30.0, {"c": 9.0}), ("unit", 5.0, {"d": 2})]
    ):
        body = {"part": part, "seconds": seconds, "tests": tests}
        (tmp_path / f"{number}.json").write_text(json.dumps(body))
    expected = """\
     65 s  unit (3 tests)
     30 s  spark (1 tests)
     95 s  in all; the slowest 20:
    9.0 s  c
    2.0 s  d
    1.5 s  a
    0.5 s  b"""

    assert expected == durations.table(tmp_path)

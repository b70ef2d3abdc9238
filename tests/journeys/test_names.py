"""Names that nobody should give: data where they are data, refused in a sentence where not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.journeys import harness
from tests.journeys.apps import named
from tests.journeys.harness import COMMAND, SESSION_LESS, Run, command
from understudy.cli.app import main

CLUSTER = ("-D", "high-availability.cluster-id=names")

REFUSED = {
    named.LONG: "has 5000 characters: at most 1000 bytes, shorten it",
    "": "a job's name must not be empty",
    " \t\n": "a job's name must not be empty",
    "half \ud83e of a duck": "holds a lone surrogate",
}
TAKEN = [name for name in named.NAMES if name not in REFUSED]


@dataclass
class Story:
    """What was seen of the run, by whom."""

    run: Run
    seen: dict[str, dict[str, Any]]
    rest: dict[str, Any]
    commands: dict[str, subprocess.CompletedProcess[str]]
    result: list[dict[str, Any]]
    log: str
    files: list[Path]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    """Run the application, and look at it from everywhere, while it runs and after."""
    ground = tmp_path_factory.mktemp("names")
    place = ground / "a" / "b"
    place.mkdir(parents=True)
    app = harness.put_app(place, "named.py")
    line = [*COMMAND, "run-application", "--json", *SESSION_LESS, *CLUSTER, str(app), "hold"]
    run = Run(line, place, place / "stderr.log")
    try:
        application = run.wait("application-status")["application_id"]
        run.grown("seen.jsonl", len(named.NAMES))
        told = map(json.loads, run.lines("seen.jsonl"))
        rest = run.get(f"/applications/{application}")
        commands = {"info": command(place, "info", *CLUSTER, application)}
        run.release()
        assert 0 == run.finish(), run.story()
        for word in ("info", "result", "list", "logs"):
            ids = () if word == "list" else (application,)
            commands[f"{word} after"] = command(place, word, *CLUSTER, *ids)
        stored = command(place, "result", *CLUSTER, "--json", application).stdout
        result = [one["job-execution-result"] for one in json.loads(stored)["jobs"]]
        [log] = (place / "state" / "understudy" / "logs").glob("*.log")
        files = [path for path in ground.rglob("*") if path.is_file()]
        yield Story(
            run, {one["name"]: one for one in told}, rest, commands, result, log.read_text(), files
        )
    finally:
        harness.end(run)


@pytest.mark.parametrize("name", REFUSED, ids=lambda name: ascii(name)[:30])
def test_a_name_that_is_none_is_refused_with_the_limit(story: Story, name: str) -> None:
    assert REFUSED[name] in story.seen[name]["refused"]


@pytest.mark.parametrize("name", TAKEN, ids=lambda name: ascii(name)[:30])
def test_any_other_name_is_what_it_was_in_job_rest_events_and_results(
    story: Story, name: str
) -> None:
    assert [name] == story.seen[name]["value"]
    assert [name] == [job["name"] for job in story.rest["jobs"] if job["name"] == name]
    assert {"FINISHED"} <= {event["status"] for event in story.run.of("job-status", name=name)}
    assert [[name]] == [one["value"] for one in story.result if one["name"] == name]


def test_no_command_lets_a_name_move_the_cursor_or_feign_a_line(story: Story) -> None:
    for word, done in story.commands.items():
        if word != "logs after":
            assert "feigned" not in done.stdout
        assert "Traceback" not in done.stderr
        assert [] == [line for line in done.stdout.split("\n") if not line.isprintable()], word


def test_a_name_is_shown_as_it_is_where_it_harms_nobody(story: Story) -> None:
    shown = story.commands["result after"].stdout

    assert "  [bold]brackets[/bold] [/x]: FINISHED in attempt 1" in shown
    assert "  ../../x: FINISHED in attempt 1" in shown
    assert "  two·lines: FINISHED in attempt 1" in shown
    assert "  naïve \U0001f986 鸭子: FINISHED in attempt 1" in shown


def test_no_name_feigns_a_line_of_the_log(story: Story) -> None:
    lines = story.log.split("\n")

    assert [] == [line for line in lines if not line.isprintable()]
    assert [] == [line for line in lines if line.startswith(("2026-01-01", "X-Header", "lines"))]


def test_no_name_leads_out_of_the_directory(story: Story) -> None:
    beside = {"named.py", "seen.jsonl", "stderr.log", "go"}
    elsewhere = [
        path
        for path in story.files
        if "state" not in path.parts and "__pycache__" not in path.parts
    ]

    assert beside == {path.name for path in elsewhere}


# --- what is said on the command line -------------------------------------------------------------

KEYS = "high-availability.cluster-id"
LONG = "é" * 5_000

ARGUMENTS: dict[str, tuple[list[str | bytes], str]] = {
    "a name of ten kilobytes": (["--name", LONG, "app.py"], "the application's name is 'ééé"),
    "a name that moves the cursor": (["--name", "a\x1b[2J", "app.py"], r"name is 'a\x1b[2J': use"),
    "a name of two lines": (["--name", "a\nb", "app.py"], r"the application's name is 'a\nb': use"),
    "a name of nothing": (["--name", "  ", "app.py"], "the application's name is '  ': use up to"),
    "a name that is no UTF-8": (["--name", b"\xff", "app.py"], r"application's name is '\udcff'"),
    "an argument that is no UTF-8": (["app.py", b"\xff"], r"argument 1 is '\udcff', which is no"),
    "a setting that is no UTF-8": (["-D", b"io.tmp.dirs=\xff", "app.py"], r"dirs is '\udcff': exp"),
    "a setting of Spark's that is none": (["--conf", b"spark.x=\xff", "app.py"], "which is no UTF"),
    "arguments beyond all measure": (["app.py", *["a" * 90_000] * 3], "take 270,"),
    "a long key": (["-D", f"{LONG}=1", "app.py"], "(5,000 characters); docs/configuration.md"),
    "a long value": (["-D", f"env.log.max={LONG}", "app.py"], "(5,000 characters): expected a "),
    "a key that moves the cursor": (["-D", "\x1b[2J=1", "app.py"], r"unknown option '\x1b[2J'"),
    "a run id out of here": (["--run-id", "../../x", "app.py"], "--run-id '../../x': use up to 64"),
    "a run id of dots": (["--run-id", "..", "app.py"], "--run-id '..': use up to 64 letters"),
    "a run id beyond ASCII": (["--run-id", "é" * 64, "app.py"], "use up to 64 letters (a to z)"),
    "a run id of two lines": (["--run-id", "a\nb", "app.py"], r"--run-id 'a\nb': use up to 64"),
    "a cluster id out of here": (["-D", f"{KEYS}=../../x", "app.py"], f"{KEYS} is '../../x'"),
    "a long cluster id": (["-D", f"{KEYS}={'x' * 101}", "app.py"], "use up to 100 letters, digit"),
    "a job id out of here": (
        ["-D", "$internal.pipeline.job-id=../../x", "app.py"],
        "$internal.pipeline.job-id is '../../x': expected 32 hexadecimal digits",
    ),
    "a script that is not there": (["\x1b[2J.py"], "·[2J.py: no such script"),
    "settings in a file of bytes": (["--properties-file", "bytes", "app.py"], "not text in UTF-8"),
    "a port beyond all ports": (
        ["-D", "rest.port=65536", "app.py"],
        "whole number from 1 to 65535",
    ),
    "slots without end": (["--slots", "2147483647", "app.py"], "a whole number from 1 to 1000"),
    "a backend that is none": (
        ["-D", "high-availability.type=os:getcwd", "-D", f"{KEYS}=x", "app.py"],
        "high-availability.type names 'os:getcwd', which opens no register",
    ),
    "values beyond the wire": (["-D", "job.result.max-size=1 gb", "app.py"], "at most 32 mb"),
    "beats that nobody can keep": (
        ["-D", "taskmanager.driver.heartbeat-timeout=1 ms", "app.py"],
        "taskmanager.driver.heartbeat-timeout is '1 ms': expected a duration of at least 1 s",
    ),
}


def test_what_cannot_be_meant_is_refused_in_one_sentence_before_anything_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command is run in this process, as there are many."""
    (tmp_path / "app.py").write_text("print('ran')")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    found = {}
    for name, (words, _) in ARGUMENTS.items():
        typed = [os.fsdecode(word) for word in (*SESSION_LESS, *words)]
        monkeypatch.setattr(sys, "argv", ["understudy", "run-application", *typed])
        with pytest.raises(SystemExit) as end:
            main()
        found[name] = (end.value.code, capsys.readouterr().err)

    assert dict.fromkeys(ARGUMENTS, 2) == {name: code for name, (code, _) in found.items()}
    for name, (_, said) in ARGUMENTS.items():
        [line] = found[name][1].rstrip("\n").split("\n")
        assert said in line, name
        assert line.startswith("understudy: ")
        assert line.isprintable()
        assert len(line) < 600, name
    assert ["app.py", "bytes"] == sorted(os.listdir(tmp_path))


def _refusal(place: Path, words: list[str | bytes]) -> tuple[int, str]:
    done = subprocess.run(
        [*COMMAND, "run-application", *SESSION_LESS, *words],
        cwd=place,
        env=harness.environment(place),
        capture_output=True,
        timeout=harness.PATIENCE_S,
        check=False,
    )
    return done.returncode, done.stderr.decode()


def test_a_script_whose_name_is_no_utf_8_is_refused(tmp_path: Path) -> None:
    odd = os.fsencode(tmp_path) + b"/caf\xe9.py"
    Path(os.fsdecode(odd)).write_text("print('ran')")
    (tmp_path / "app.py").write_text("print('ran')")
    itself = _refusal(tmp_path, [odd])
    beside = _refusal(tmp_path, ["app.py"])

    assert (2, 2) == (itself[0], beside[0])
    assert "\\udce9.py' lies beside app.py, and its name is no UTF-8: rename it" in beside[1]
    assert "UTF-8" in itself[1] or "printable text" in itself[1]


@pytest.mark.long
def test_what_reaches_main_as_an_argument_is_data(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        "import json, sys\nopen('seen.json', 'w').write(json.dumps(sys.argv[1:]))\n"
    )
    expected = ["../../x", "two\nlines", "\x1b[2J", "", "--help", "é" * 5_000, "%s {} $HOME"]

    command(tmp_path, "run-application", *SESSION_LESS, "app.py", *expected)

    assert expected == json.loads((tmp_path / "seen.json").read_text())

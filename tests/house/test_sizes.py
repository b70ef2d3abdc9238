from tests.house.repository import ROOT, functions, modules

FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 6
SOURCE = "src/understudy/"

COMMAND = "each parameter is an option of the command line, as typer reads them"

MANY_PARAMETERS = {
    "cli/commands/run.py:run_application": COMMAND,
    "cli/commands/run.py:jobmanager": COMMAND,
    "cli/commands/standing_cluster.py:start": COMMAND,
    "cli/commands/check.py:check": COMMAND,
    "cli/commands/submit.py:run": COMMAND,
    "cli/launch/checking.py:check_start": "all that a start is given, as run-application has it",
}
"""By file below src/understudy and function: why it has more than six parameters."""


def test_no_file_is_longer_than_one_reading() -> None:
    expected: list[str] = []

    actual = [
        str(path.relative_to(ROOT))
        for path, text in modules()
        if len(text.splitlines()) > FILE_LINES_MAX
    ]

    assert expected == actual


def test_a_function_fits_a_screen() -> None:
    expected: list[str] = []

    actual = [one.place for one in functions() if one.lines > FUNCTION_LINES_MAX]

    assert expected == actual


def test_a_function_with_more_than_six_parameters_has_a_reason() -> None:
    actual = {
        one.name.removeprefix(SOURCE)
        for one in functions()
        if one.name.startswith(SOURCE) and one.parameters > PARAMETERS_MAX
    }

    assert set(MANY_PARAMETERS) == actual
    assert sum(reason != COMMAND for reason in MANY_PARAMETERS.values()) <= 3


def test_the_whole_house_is_measured() -> None:
    assert len(list(modules())) > 100
    assert len(list(functions())) > 500

from tests.house.repository import ROOT, functions, modules

FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 6
SOURCE = "src/understudy/"


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


def test_no_function_has_more_than_six_parameters() -> None:
    """What belongs together is one value: options of commands, too (cli/launch/flags.py)."""
    expected: list[str] = []

    actual = [
        one.place
        for one in functions()
        if one.name.startswith(SOURCE) and one.parameters > PARAMETERS_MAX
    ]

    assert expected == actual


def test_the_whole_house_is_measured() -> None:
    assert len(list(modules())) > 100
    assert len(list(functions())) > 500

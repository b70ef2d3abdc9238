from tests.house.repository import ROOT, functions, modules

FILE_LINES_MAX = 700
FUNCTION_LINES_MAX = 70


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


def test_the_whole_house_is_measured() -> None:
    assert len(list(modules())) > 100
    assert len(list(functions())) > 500

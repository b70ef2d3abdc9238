from tests.house.repository import ROOT
from tests.mutants.catalogue import MUTANTS


def test_each_mutant_still_finds_what_it_changes() -> None:
    expected: list[str] = []

    actual = [
        mutant.name
        for mutant in MUTANTS
        if (ROOT / "src" / "understudy" / mutant.path).read_text().count(mutant.before) != 1
    ]

    assert expected == actual


def test_the_tests_that_must_notice_a_mutant_exist() -> None:
    expected: list[str] = []

    actual = [
        f"{mutant.name}: {test}"
        for mutant in MUTANTS
        for test in mutant.tests
        if not _exists(*test.partition("[")[0].split("::"))
    ]

    assert expected == actual


def _exists(file: str, name: str = "") -> bool:
    path = ROOT / file
    return path.is_file() and (not name or f"def {name}(" in path.read_text())


def test_every_invariant_has_a_mutant() -> None:
    expected = set(range(1, 11))

    actual = {mutant.invariant for mutant in MUTANTS}

    assert expected == actual


def test_there_are_at_least_forty_mutants_with_names_of_their_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 40

from pathlib import Path


def shout(word: str) -> str:
    return word.upper() + Path(__file__).with_name("mark.txt").read_text().strip()

"""Random signals to the real processes of a real run, and what must hold whatever they hit."""

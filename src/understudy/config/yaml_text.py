"""YAML whose values stay text: the options say which type each of them has."""

from __future__ import annotations

import yaml


class _TextLoader(yaml.SafeLoader):
    """Leaves settings the text that they are: ``off`` is no boolean, ``1:30`` no number."""

    yaml_implicit_resolvers = {  # noqa: RUF012 -- declared so by PyYAML
        first: [(tag, pattern) for tag, pattern in resolvers if tag.endswith((":null", ":merge"))]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def parsed(text: str) -> object:
    """Return what a YAML text holds; raises `ValueError` for a text that is not YAML."""
    try:
        return yaml.load(text, _TextLoader)  # noqa: S506 -- a safe one
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error

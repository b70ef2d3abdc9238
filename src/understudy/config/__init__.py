"""Every option once: its key, type, default and meaning; and the parsing of settings.

``option`` defines the types, ``options`` declares the options, ``flink`` lists Flink's keys that
are not options here, ``configuration`` reads, checks and redacts. `docs/configuration.md` is
generated from here.
"""

from understudy.config.configuration import Configuration
from understudy.config.option import Option

__all__ = ["Configuration", "Option"]

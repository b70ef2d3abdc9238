"""Every option once: its key, type, default and meaning; and how settings become typed values.

``option`` knows the types, ``options`` declares what there is, ``flink`` what Flink has and this
does not, ``configuration`` reads, checks and redacts. `docs/configuration.md` is generated from
here.
"""

from understudy.config.configuration import Configuration
from understudy.config.option import Option

__all__ = ["Configuration", "Option"]

"""The names of an endpoint: as what a request may address the endpoint."""

from __future__ import annotations

from dataclasses import dataclass

from understudy.config import Configuration, options
from understudy.config.places import HostPort, place_of, spelled
from understudy.config.security import is_everywhere, is_loopback


@dataclass(frozen=True)
class Hosts:
    """Under which names an endpoint may be asked, beside those of loopback."""

    known: frozenset[HostPort] = frozenset()

    @staticmethod
    def of(configuration: Configuration, *names: str) -> Hosts:
        """Return what a configuration allows, and the names that the endpoint publishes."""
        named = [one for one in names if one and not is_everywhere(one)]
        known = {HostPort(spelled(one), None) for one in named}
        further = [place_of(one) for one in configuration.get(options.ALLOWED_HOSTS)]
        return Hosts(frozenset(known | {place for place in further if place}))

    def knows(self, place: HostPort, reached: str) -> bool:
        """Say whether an endpoint at the address that was ``reached`` is called that.

        An address is known where the connection was made to it: it cannot be bound anew.
        """
        if is_loopback(place.host) or place.host == spelled(reached):
            return True
        return place in self.known or HostPort(place.host, None) in self.known

"""Checks of the options of ``high-availability.type: zookeeper``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from understudy.config import options
from understudy.errors import ConfigurationError
from understudy.ha.backends.zookeeper import options as zk

if TYPE_CHECKING:
    from understudy.config import Configuration

TYPE = "zookeeper"


def check(configuration: Configuration) -> None:
    """Raise `ConfigurationError` if the quorum is missing or unused, or options contradict."""
    quorum = configuration.settings.get(zk.ZK_QUORUM.key)
    if quorum and options.HA_TYPE.key not in configuration.settings:
        # Never run without the high availability that the user expects.
        raise ConfigurationError(
            f"{zk.ZK_QUORUM.key} is set, but {options.HA_TYPE.key} is not: set it to {TYPE}"
        )
    if configuration.get(options.HA_TYPE).lower() != TYPE:
        return
    if not quorum:
        raise ConfigurationError(
            f"{options.HA_TYPE.key} is {TYPE}, but {zk.ZK_QUORUM.key} is not set: name the "
            "servers, such as zk1:2181,zk2:2181,zk3:2181"
        )
    if configuration.get(zk.ZK_ENSEMBLE_TRACKER):
        configuration.warnings.append(
            f"{zk.ZK_ENSEMBLE_TRACKER.key} does nothing here: a changed quorum needs a "
            "restart of each process, standbys first"
        )
    session_s = configuration.get(zk.ZK_SESSION_TIMEOUT)
    orphan_s = configuration.get(options.ORPHAN_TIMEOUT)
    if session_s >= orphan_s:
        configuration.warnings.append(
            f"{zk.ZK_SESSION_TIMEOUT.key} ({session_s:g} s) is not shorter than "
            f"{options.ORPHAN_TIMEOUT.key} ({orphan_s:g} s): when the leader's host is lost, the "
            "drivers end before somebody else leads, and their jobs start again"
        )
    _check_identity(configuration)
    _check_tls(configuration)


def _check_identity(configuration: Configuration) -> None:
    mechanism = configuration.get(zk.ZK_SASL_MECHANISM)
    words = configuration.find(zk.ZK_AUTHORIZATION) or ()
    shown = configuration.find(zk.ZK_SSL_CERTIFICATE)
    known = mechanism != "none" or words or shown
    if configuration.get(zk.ZK_ACL) == "creator" and not known:
        raise ConfigurationError(
            f"{zk.ZK_ACL.key} is creator, but nothing says who the creator is: set "
            f"{zk.ZK_AUTHORIZATION.key}, {zk.ZK_SASL_MECHANISM.key} or "
            f"{zk.ZK_SSL_CERTIFICATE.key}, or leave it open"
        )
    for option in (zk.ZK_SASL_USERNAME, zk.ZK_SASL_PASSWORD):
        if mechanism == "DIGEST-MD5" and not configuration.find(option):
            raise ConfigurationError(
                f"{zk.ZK_SASL_MECHANISM.key} is {mechanism}, but {option.key} is not set"
            )
    for word in words:
        scheme, _, credential = word.partition(":")
        if not scheme or not credential:
            raise ConfigurationError(
                f"{zk.ZK_AUTHORIZATION.key} holds an entry that is not scheme:credential, "
                "such as digest:user:password"
            )


def _check_tls(configuration: Configuration) -> None:
    if configuration.find(zk.ZK_SSL_KEY) and not configuration.find(zk.ZK_SSL_CERTIFICATE):
        raise ConfigurationError(
            f"{zk.ZK_SSL_KEY.key} is set, but {zk.ZK_SSL_CERTIFICATE.key} is not: a key "
            "is shown with its certificate"
        )
    for option in (
        zk.ZK_SSL_CA,
        zk.ZK_SSL_CERTIFICATE,
        zk.ZK_SSL_KEY,
        zk.ZK_SSL_KEY_PASSWORD,
    ):
        if configuration.find(option) and not configuration.get(zk.ZK_SSL):
            raise ConfigurationError(
                f"{option.key} is set, but {zk.ZK_SSL.key} is not true: nothing would be encrypted"
            )

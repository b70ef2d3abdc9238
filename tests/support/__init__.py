"""Shared parts of the tests: virtual time, fakes that pass the contracts, faults."""

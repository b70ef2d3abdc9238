"""What several kinds of tests share: virtual time, fakes that pass the contracts, faults."""

"""Journeys with real Spark. A start of Spark is dear: each run is shared by several tests."""

"""Runs: pipelines that go on where they were."""

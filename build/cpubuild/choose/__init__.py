"""Choices that follow from a host's facts and a release alone: level, compiler, Python, jobs."""

"""The protocols end to end: choose images, explain them, measure, and write a folder; killed, they continue."""

from dubium.evaluation.protocols.job import Job

__all__ = ["Job"]

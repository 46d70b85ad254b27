"""Dovetail: the message broker you can replay."""

from importlib.metadata import version

__version__ = version("dovetail")

"""Runs a program under observation and writes down the facts."""

from gradscope.record.limit import StopTrace
from gradscope.record.observation import Observation

__all__ = ["Observation", "StopTrace"]

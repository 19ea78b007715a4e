"""Runs a program under observation and writes down the facts."""

from gradscope.record.limit import StopTrace
from gradscope.record.recorder import Recorder

__all__ = ["Recorder", "StopTrace"]

"""Runs a program under observation and writes down the facts."""

from gradscope.record.recorder import Recorder, StopTrace

__all__ = ["Recorder", "StopTrace"]

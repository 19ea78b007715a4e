"""Runs a program under observation and writes down the facts."""

from gradscope.record.recorder import Observer, Recorder, StopTrace

__all__ = ["Observer", "Recorder", "StopTrace"]

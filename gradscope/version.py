"""Which gradscope this is."""

__version__ = "0.2.0"

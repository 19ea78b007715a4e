"""gradscope: names the op that broke a gradient, says why, and hands over a fix that was tried."""

__version__ = "0.1.0"

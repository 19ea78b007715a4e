"""Compares what is found of programs in watching them with what a look at every step finds."""

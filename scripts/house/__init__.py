"""How the package is laid out: its layers, their files and lines, and who imports whom."""

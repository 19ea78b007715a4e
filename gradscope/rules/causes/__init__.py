"""The causes: one rule a file, found by walking this package."""

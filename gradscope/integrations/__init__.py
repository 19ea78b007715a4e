"""gradscope inside other programs: pytest."""

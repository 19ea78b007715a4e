"""How causes put facts into words."""

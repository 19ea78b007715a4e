"""What causes ask of a trace."""

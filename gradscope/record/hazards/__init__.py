"""How near a healthy run came to breaking."""

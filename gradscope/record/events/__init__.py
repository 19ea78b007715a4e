"""What becomes of a bad value: the closer look at ops near one, and the symptoms it leads to."""

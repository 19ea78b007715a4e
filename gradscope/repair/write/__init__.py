"""The writers: from a fix that a rule asks for to edits of the user's source."""

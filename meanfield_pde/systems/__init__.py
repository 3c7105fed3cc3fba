"""States, and how a velocity field changes them: a density with what lies below its mesh, tokens."""

"""Meshes of S^1 and S^2: one record, its makers and its files."""

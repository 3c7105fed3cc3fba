"""Probability laws on the sphere, their cell averages and samples of them."""

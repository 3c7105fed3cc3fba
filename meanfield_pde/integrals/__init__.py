"""Integrals of a kernel over a measure: factors per degree, sums, transforms, and the rule that chooses."""

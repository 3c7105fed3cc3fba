"""Time stepping: strong-stability-preserving tableaus, an adaptive method, the change between them, compiled ensembles."""

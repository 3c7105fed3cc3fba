"""What is read off measures and runs: energies, clusters, distances, stages, comparisons."""

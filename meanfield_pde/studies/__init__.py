"""Studies of n -> infinity: ensembles of tokens beside their limit, over sizes, times and parameters."""

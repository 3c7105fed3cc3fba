"""`python -m meanfield_pde`: the command line, where its own command is not on the path."""

from meanfield_pde.cli import main

main()

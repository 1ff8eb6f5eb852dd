"""`python -m orbitmq`: the command line without an installed script."""

from orbitmq.cli.main import main

main()

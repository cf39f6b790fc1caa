"""``python -m gobblin_assets.cli``: the command line where the script is not on the PATH."""

from gobblin_assets.cli import main

main(prog_name="gobblin-assets")

"""A program that asks for a flow and goes on until it has ended, so that tests can kill it: URL, story, flow's name."""

import sys

from gobblin_assets.db.engine import open_external
from tests.support.flow_world import FlowWorld, delete_while_it_runs, run_to_the_end

STORIES = {story.__name__: story for story in (run_to_the_end, delete_while_it_runs)}


def main() -> None:
    url, story, name = sys.argv[1:]
    engine = open_external(url)
    STORIES[story](FlowWorld(engine), name)
    engine.dispose()


if __name__ == "__main__":
    main()

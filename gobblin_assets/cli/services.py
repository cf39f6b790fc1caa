"""Commands of the service: the group, and where its commands are."""

from collections.abc import Mapping
from typing import Final

from gobblin_assets.cli.lazy_commands import LazyCommand, LazyGroup

_COMMANDS: Final[Mapping[str, LazyCommand]] = {
    "serve": LazyCommand(
        "gobblin_assets.cli.serving", "serve", "Serve the REST API and the pages, until SIGTERM or Ctrl-C."
    ),
    "flow": LazyCommand("gobblin_assets.cli.flows", "flow", "Flows of a running service."),
    "pack": LazyCommand("gobblin_assets.cli.packs", "pack", "Packs of job templates."),
    "template": LazyCommand("gobblin_assets.cli.packs", "template", "Job templates of a running service."),
    "node": LazyCommand("gobblin_assets.cli.node_questions", "node", "Nodes of a running service: places of data."),
    "executor": LazyCommand(
        "gobblin_assets.cli.node_questions", "reached_executors", "Executors that a running service sends tickets to."
    ),
    "log": LazyCommand("gobblin_assets.cli.service_logs", "log", "Logs of executors, and their drains for upgrades."),
    "token": LazyCommand("gobblin_assets.cli.tokens", "token", "Tokens by which users are known."),
}

service = LazyGroup("service", lazy=_COMMANDS, help="The service: flows over REST and pages.")

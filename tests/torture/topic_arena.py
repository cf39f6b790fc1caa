"""Where topic runners are tortured: a Kafka broker, a Postgres for the log, a Spark Connect server, one destination."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from demo.kafka.broker import start_broker
from tests.torture.disturber import Strike, strikes_on_the_broker
from tests.torture.proxy import Proxies
from tests.torture.runner_process import Process
from tests.torture.schedule import Injection, RunnerPlan
from tests.torture.spark_arena import SparkArena
from tests.torture.tally import Tally
from tests.torture.topic_log import TopicLog
from tests.torture.topic_runner import Topics, start_topic_runner

_URNS: Final = ("orders", "clicks", "page.views", "Odd_Name-1")


class TopicArena(SparkArena):
    """Begins with the first records in the topics, a warm Spark server, nothing published, and no runner."""

    kind = "topic"
    at_work_max = 3
    disturbed_every_s = 20.0

    def __init__(self, home: Path, seed: str, tally: Tally) -> None:
        self._broker = start_broker(home / "kafka")
        super().__init__(home, seed, tally, _URNS)
        self._proxies = Proxies(home, self.victim, seed, tally)

    def open_source(self, seed: str) -> TopicLog:
        return TopicLog(self._broker.bootstrap, _URNS, seed, self.tally)

    def site(self) -> Topics:
        return Topics(
            home=str(self.home), database_url=self.victim.url, urns=self.urns, bootstrap=self._broker.bootstrap
        )

    def start(self, plan: RunnerPlan) -> Process:
        return start_topic_runner(
            plan, replace(self.site(), database_url=self._proxies.url(plan.route)), self.runners.logs
        )

    def strikes(self) -> Mapping[Injection, Strike]:
        return {
            **super().strikes(),
            **strikes_on_the_broker(self._broker),
        }

    def mend(self) -> None:
        self._proxies.calm_down()

    def close(self, *, keep: bool) -> None:
        super().close(keep=keep)
        self._proxies.close()
        self._broker.kill()

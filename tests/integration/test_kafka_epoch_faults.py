"""A reader of epochs and a broker that goes away, comes back, hangs, or refuses the login."""

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from demo.kafka.broker import KafkaBroker, start_broker
from gobblin_assets.errors import RejectedError, RetryableError
from gobblin_assets.kafka.connection import KafkaConnection
from gobblin_assets.sources.kafka.epoch_log import KafkaEpochLog, TimeBarriers
from tests.support.kafka import make_topic, produce
from tests.support.topic_epochs import Epochs, following, start_positions

pytestmark = pytest.mark.turns(of=8)

_PASSWORD = "correct horse;=staple"
_WRONG = "wrong battery;=cable"


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """A broker that may go away; ann may log in, and read nothing."""
    folder = Path(tempfile.mkdtemp(prefix="gobblin-kafka-"))
    rights = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with start_broker(folder, settings=rights, users={"ann": _PASSWORD}) as made:
        yield made
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.turns("what readers of topics meet", of=8)
def test_a_restart_of_the_broker_is_waited_out(broker: KafkaBroker) -> None:
    name = make_topic(broker.bootstrap, "restarted")
    vnode = f"{name}:0"
    produce(broker.bootstrap, name, [b"%d" % number for number in range(100)])
    with following(broker.bootstrap, name, timeout_s=1) as epochs:
        epochs.read_to({vnode: 100})
        broker.stop()
        seen = len(epochs.closed)
        for item in epochs.log.read(wait_s=0.5):
            raise AssertionError(f"nothing can come while the broker is away, not even a barrier: {item}")
        assert len(epochs.closed) == seen
        broker.restart()
        produce(broker.bootstrap, name, [b"%d" % number for number in range(100, 200)])
        epochs.read_to({vnode: 200})
        assert epochs.values == Counter((vnode, b"%d" % number) for number in range(200))


def test_a_broker_that_hangs_is_an_error_after_a_while_and_may_come_back(broker: KafkaBroker) -> None:
    name = make_topic(broker.bootstrap, "silent")
    produce(broker.bootstrap, name, [b"a"])
    start = start_positions(broker.bootstrap, name)
    connection = KafkaConnection(broker.bootstrap, options={"default.api.timeout.ms": "2000"})
    log = KafkaEpochLog(connection, topic_ids={name: start.topic_id}, barriers=TimeBarriers(0.05))
    with closing(log):
        log.assign(start.positions)
        epochs = Epochs(log)
        epochs.read_to({f"{name}:0": 1})
        broker.pause()
        try:
            with pytest.raises(RetryableError, match=r"nothing was read for 2 s: .*no broker of .* answered"):
                epochs.read_until(lambda: False, "an error")
        finally:
            broker.resume()
        produce(broker.bootstrap, name, [b"b"])
        epochs.read_to({f"{name}:0": 2})
        assert epochs.values == Counter([(f"{name}:0", b"a"), (f"{name}:0", b"b")])


@pytest.mark.parametrize(
    ("password", "said", "field"),
    [
        (_WRONG, "refuses the login of 'ann'", "connections[kafka].password"),
        (_PASSWORD, "may not", "connections[kafka].username"),
    ],
)
def test_a_refused_login_and_missing_rights_are_for_people(
    broker: KafkaBroker, password: str, said: str, field: str
) -> None:
    name = make_topic(broker.bootstrap, f"secret-{len(password)}")
    topic_id = start_positions(broker.bootstrap, name).topic_id
    connection = KafkaConnection(
        broker.sasl_bootstrap, "SASL_PLAINTEXT", sasl_mechanism="PLAIN", username="ann", password=password
    )
    with closing(KafkaEpochLog(connection, topic_ids={name: topic_id}, barriers=TimeBarriers(0.05))) as log:
        log.assign({f"{name}:0": 0})
        with pytest.raises(RejectedError) as refused:
            Epochs(log).read_until(lambda: False, "an error")
    assert refused.value.field == field
    assert said in str(refused.value)
    assert password not in str(refused.value)

"""New records in a topic, and the lag of a dataset: judged by the rules that plan runs."""

from dataclasses import replace

import pytest

from gobblin_assets.errors import CorruptionError, GobblinError, RejectedError, RetryableError
from gobblin_assets.model.watermark import long_watermark, parse_watermark
from gobblin_assets.run.lag import KEYS_SHOWN_MAX, KeyLag, lag_from_json, lag_to_json, measure_lag
from gobblin_assets.run.quality_checks import check_lag
from gobblin_assets.sources.connection import LogNews
from gobblin_assets.sources.kafka.cluster import TopicOffsets
from gobblin_assets.sources.kafka.kafka_kind import KafkaSourceSpec
from gobblin_assets.sources.kafka.watch import TopicWatch, decide_news
from tests.support.topic_plans import FixedCluster, Follower, offsets_of

SOURCE = KafkaSourceSpec(type="kafka", connection="kafka")
ENDS = {0: (0, 10), 1: (0, 20)}


def news_of(follower: Follower, offsets: TopicOffsets, *, version: int = 1) -> LogNews:
    request = follower.request()
    return decide_news(replace(request, state=replace(request.state, version=version)), offsets)


class TestNews:
    def test_of_a_topic_that_was_never_published_is_all_that_a_first_run_reads(self) -> None:
        news = news_of(Follower(), offsets_of(ENDS), version=0)
        assert (news.count, news.begins) == (30, True)

    def test_of_an_empty_topic_is_that_its_positions_are_to_be_set(self) -> None:
        news = news_of(Follower(), offsets_of({0: (0, 0)}), version=0)
        assert (news.count, news.begins) == (0, True)

    def test_after_everything_was_read_there_are_none_until_a_record_comes(self) -> None:
        follower = Follower()
        follower.follow(offsets_of(ENDS))
        assert news_of(follower, offsets_of(ENDS)) == LogNews(
            {"MyTopic:0": (10, 10), "MyTopic:1": (20, 20)}, begins=False, mark=news_of(follower, offsets_of(ENDS)).mark
        )
        news = news_of(follower, offsets_of({**ENDS, 1: (0, 21)}))
        assert (news.count, news.begins) == (1, False)

    def test_an_added_partition_is_news_by_its_records_alone(self) -> None:
        follower = Follower({"bootstrap_with": "latest"})
        follower.follow(offsets_of(ENDS))
        assert (news_of(follower, offsets_of({**ENDS, 2: (0, 0)})).count) == 0
        assert not news_of(follower, offsets_of({**ENDS, 2: (0, 0)})).begins
        assert news_of(follower, offsets_of({**ENDS, 2: (0, 7)})).count == 7

    def test_a_partition_that_could_not_be_set_at_first_is_set_by_a_run(self) -> None:
        follower = Follower({"bootstrap_with": "latest"})
        follower.follow(offsets_of({0: (0, 10)}, 1))
        assert not news_of(follower, offsets_of({0: (0, 10)}, 1)).begins, "a partition without a leader asks for runs"
        assert news_of(follower, offsets_of(ENDS)).begins

    def test_partitions_that_the_bootstrap_rule_leaves_out_never_ask_for_a_run(self) -> None:
        follower = Follower({"bootstrap_with": "skip"})
        follower.follow(offsets_of(ENDS))
        news = news_of(follower, offsets_of(ENDS))
        assert (news.count, news.begins, news.lag) == (0, False, None)

    def test_limits_of_a_run_don_t_limit_what_is_new(self) -> None:
        news = news_of(Follower({"records_per_partition_max": 3}), offsets_of(ENDS))
        assert news.count == 30

    def test_a_beginning_by_time_is_not_asked_for(self) -> None:
        follower = Follower({"bootstrap_with": "timestamp", "bootstrap_timestamp": "2013-01-01"})
        news = news_of(follower, offsets_of(ENDS), version=0)
        assert (news.count, news.begins) == (0, True)

    def test_what_planning_refuses_is_refused(self) -> None:
        follower = Follower()
        follower.follow(offsets_of(ENDS))
        with pytest.raises(RejectedError, match="deleted before they were read"):
            news_of(follower, offsets_of({0: (11, 12), 1: (0, 20)}))
        with pytest.raises(RetryableError):
            news_of(follower, offsets_of({}, 0, 1))


class TestMark:
    def test_changes_when_a_partition_with_something_unread_moved_and_only_then(self) -> None:
        follower = Follower({"records_per_partition_max": 3})
        follower.follow(offsets_of(ENDS))
        more = offsets_of({0: (0, 500), 1: (0, 20)})
        before = news_of(follower, offsets_of(ENDS)).mark
        assert news_of(follower, more).mark == before, "records that came are no progress of a run"
        assert news_of(follower, offsets_of(ENDS), version=9).mark == before
        follower.follow(offsets_of(ENDS))
        assert news_of(follower, offsets_of(ENDS)).mark != before


def test_all_topics_are_asked_about_at_once_and_each_has_its_own_answer() -> None:
    cluster = FixedCluster({"a": offsets_of(ENDS), "b": offsets_of({}, 0)})
    found = TopicWatch(cluster, SOURCE).find_news([Follower(topic=name).request() for name in ("a", "b", "c")])
    assert cluster.asked == [["a", "b", "c"]]
    kinds = {urn: type(each) for urn, each in found.items()}
    assert kinds == {"a": LogNews, "b": RetryableError, "c": RejectedError}
    assert all(isinstance(each, LogNews | GobblinError) for each in found.values())


class TestLag:
    def test_is_what_the_publication_left_of_what_was_unread(self) -> None:
        lag = measure_lag({"t:0": (0, 10), "t:1": (5, 20), "t:2": (7, 7)}, {"t:1": long_watermark(8)})
        assert lag is not None
        assert (lag.total, lag.key_count) == (22, 3)
        assert lag.largest == (KeyLag("t:1", 8, 20), KeyLag("t:0", 0, 10))

    def test_of_thousands_of_partitions_lists_only_the_largest(self) -> None:
        lag = measure_lag({f"t:{number}": (0, number) for number in range(1_000)})
        assert lag is not None
        assert (len(lag.largest), lag.largest[0].count, lag.total) == (KEYS_SHOWN_MAX, 999, 499_500)
        assert lag_from_json(lag_to_json(lag)) == lag

    def test_of_a_table_is_none(self) -> None:
        assert measure_lag({}) is None
        assert lag_from_json(None) is None

    def test_of_positions_that_count_nothing_is_refused(self) -> None:
        with pytest.raises(CorruptionError, match="which is no number"):
            measure_lag({"t:0": (0, 1)}, {"t:0": parse_watermark({"type": "string", "value": "x"})})

    @pytest.mark.parametrize(("lag_max", "passed"), [(9, False), (10, True)])
    def test_warns_above_the_threshold_and_blocks_nothing(self, lag_max: int, passed: bool) -> None:
        lag = measure_lag({"t:0": (0, 10)})
        assert lag is not None
        found = check_lag(lag, lag_max=lag_max)
        assert (found.passed, found.blocking) == (passed, False)
        assert found.figures == {"lag": 10, "lag_max": lag_max, "largest_lag": 10, "largest_lag_key": "t:0"}

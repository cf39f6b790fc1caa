"""Whether an error shows that Spark's server did not answer, wherever in its causes this stands."""

import traceback

from pyspark.errors import RetriesExceeded

from gobblin_assets.errors import RetryableError
from gobblin_assets.spark.errors import is_server_gone, spark_families


def given_up() -> RetriesExceeded:
    return RetriesExceeded(errorClass="RETRIES_EXCEEDED", messageParameters={})


def raised_in_families(error: Exception) -> RetryableError:
    try:
        with spark_families("write"):
            raise error
    except RetryableError as family:
        return family


def raised_instead(error: Exception) -> RetryableError:
    family = RetryableError("the topic can't be read")
    try:
        try:
            raise error
        except RetriesExceeded:
            raise family from None
    except RetryableError:
        return family


def test_a_server_that_did_not_answer_is_found_behind_what_was_raised_from_it_or_instead_of_it() -> None:
    assert is_server_gone(given_up())
    assert is_server_gone(raised_in_families(given_up()))
    assert is_server_gone(raised_instead(given_up()))


def test_other_errors_say_nothing_of_the_server_not_even_one_that_was_raised_from_itself() -> None:
    own_cause = RetryableError("the disk was full for a moment")
    own_cause.__cause__ = own_cause

    assert not is_server_gone(own_cause)
    assert not is_server_gone(raised_in_families(ConnectionRefusedError("the registry is away")))


def test_no_token_of_an_address_is_in_what_a_library_says_nor_in_the_causes_that_people_are_shown() -> None:
    said = "Spark Connect [sc://localhost:5/;token=hush;user_id=u] and '/;Token=hush'"
    family = raised_in_families(RetriesExceeded(said))
    assert "hush" not in "".join(traceback.format_exception(family))
    assert "sc://localhost:5/;token=…;user_id=u" in family.message
    assert is_server_gone(family)

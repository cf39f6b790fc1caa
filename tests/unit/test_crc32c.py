"""The CRC32C of parts in a row, beside that of the whole bytes by the library that computes both."""

import google_crc32c
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.jobs.copy.checksums import combine, combine_all


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_parts_give_the_checksum_of_the_whole(parts: list[bytes]) -> None:
    found = combine_all((google_crc32c.value(part), len(part)) for part in parts)
    assert found == google_crc32c.value(b"".join(parts))


def test_the_published_checksum_comes_of_any_two_parts() -> None:
    digits = b"123456789"
    for cut in range(10):
        assert combine(google_crc32c.value(digits[:cut]), google_crc32c.value(digits[cut:]), 9 - cut) == 0xE3069283


def test_parts_of_terabytes_are_combined_at_once() -> None:
    """Zeros after zeros give what a longer row of zeros gives."""
    of_tib, size_bytes = 0, 1
    crc = google_crc32c.value(b"\0")
    for _ in range(40):
        crc, size_bytes = combine(crc, crc, size_bytes), size_bytes * 2
    of_tib = crc
    assert size_bytes == 1 << 40
    assert combine(of_tib, google_crc32c.value(b"\0" * 10), 10) == combine(
        google_crc32c.value(b"\0" * 10), of_tib, 1 << 40
    )

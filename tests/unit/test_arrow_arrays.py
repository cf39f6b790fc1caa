"""Arrays of the log's segments: what ``pa.array`` makes of the same values."""

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobblin_assets.commit.arrow_arrays import make_array

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
KINDS = {
    "string": (pa.string(), TEXT),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), TEXT),
    "small dictionary": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["rename", "", "ünl"])),
    "int32": (pa.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "uint64": (pa.uint64(), st.integers(0, 2**64 - 1)),
}


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_is_what_pyarrow_makes(kind: str, data: st.DataObject) -> None:
    data_type, values = KINDS[kind]
    written = data.draw(st.lists(values | st.none(), max_size=20))
    made = make_array(written, data_type)
    made.validate(full=True)
    assert (made.type, made.null_count, made.to_pylist()) == (data_type, written.count(None), written)
    assert made.equals(pa.array(written, data_type)) or pa.types.is_dictionary(data_type)


@pytest.mark.parametrize(("data_type", "value"), [(pa.int32(), 2**31), (pa.uint64(), -1), (pa.int64(), 2**63)])
def test_a_number_beyond_the_type_is_refused(data_type: pa.DataType, value: int) -> None:
    with pytest.raises(OverflowError):
        make_array([1, value], data_type)


def test_a_text_that_is_not_unicode_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        make_array(["\ud800"], pa.string())


def test_writing_and_reading_steps_imports_no_pandas() -> None:
    program = """
import sys
from gobblin_assets.destinations.files.rename_steps import RenameDirectory
from gobblin_assets.commit.segment import decode_segment, encode_segments, list_published
from gobblin_assets.model.files import DataFile, FileIdentity
from gobblin_assets.model.urn import Role
step = RenameDirectory("/a", "/b", (DataFile("f", FileIdentity(1, 2, 3), 4),))
(segment,) = encode_segments([step], role=Role.DATA, partition="")
assert decode_segment(segment.payload, segment.digest) == [step]
assert list(list_published(segment.payload, segment.digest)) == [("/b/f", FileIdentity(1, 2, 3), 4)]
sys.exit("pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr

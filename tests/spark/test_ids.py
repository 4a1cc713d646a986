from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.spark.ids import row_digests


@given(st.lists(st.binary(max_size=50), min_size=1))
def test_an_id_is_that_of_the_content_wherever_it_stands(contents):
    data, offsets = b"".join(contents), [0]
    for content in contents:
        offsets.append(offsets[-1] + len(content))
    digests = row_digests(memoryview(data), offsets, b"frame")
    alone = [row_digests(memoryview(c), [0, len(c)], b"frame")[0] for c in contents]
    assert digests == alone
    assert len(set(digests)) == len(set(contents))
    assert all(len(digest) == 32 for digest in digests)


def test_frames_with_other_columns_have_other_ids():
    [one] = row_digests(memoryview(b"x"), [0, 1], b"body")
    [other] = row_digests(memoryview(b"x"), [0, 1], b"body, tags")
    assert one != other

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.spark.ids import DIGEST_CHARS, row_digests


def digests_of(*contents, frame=b"frame"):
    offsets = [0]
    for content in contents:
        offsets.append(offsets[-1] + len(content))
    found = row_digests(memoryview(b"".join(contents)), offsets, frame)
    assert len(found) == DIGEST_CHARS * len(contents)
    return [found[at : at + DIGEST_CHARS] for at in range(0, len(found), DIGEST_CHARS)]


@given(st.lists(st.binary(max_size=50), min_size=1))
def test_an_id_is_that_of_the_content_wherever_it_stands(contents):
    digests = digests_of(*contents)
    assert digests == [digests_of(content)[0] for content in contents]
    assert len(set(digests)) == len(set(contents))


def test_frames_with_other_columns_have_other_ids():
    assert digests_of(b"x", frame=b"body") != digests_of(b"x", frame=b"body, tags")

from __future__ import annotations

import pytest

from gimbalmq.transport.reading import READ_BYTES_FIRST, next_read_bytes


@pytest.mark.parametrize(
    ("got", "expected"),
    [
        (1, 1 << 16),
        ((1 << 16) - 1, 1 << 16),
        (1 << 16, 1 << 18),
        ((1 << 18) - 1, 1 << 18),
        (1 << 18, 1 << 20),
        (1 << 20, 1 << 20),
    ],
)
def test_a_reading_is_larger_after_one_that_came_back_full(got, expected):
    assert next_read_bytes(got, 1 << 20) == expected


def test_readings_grow_step_by_step_and_shrink_at_once():
    sizes = [READ_BYTES_FIRST]
    for _ in range(4):
        sizes.append(next_read_bytes(sizes[-1], 1 << 20))
    assert sizes == [1 << 16, 1 << 18, 1 << 20, 1 << 20, 1 << 20]
    assert next_read_bytes(100, 1 << 20) == READ_BYTES_FIRST

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gimbalmq.core.measures import Measures, jain_index, measure
from gimbalmq.model.queue import MessageQueue

QUEUES = [MessageQueue("t", "b", number) for number in range(6)]
A, B, C, D, E, F = QUEUES


@pytest.mark.parametrize(
    ("before", "after", "moves", "least", "spread"),
    [
        pytest.param({"x": [A, B]}, {"x": [A, B]}, 0, 0, 0, id="nothing changes"),
        pytest.param({"x": [A, B], "y": [C, D]}, {"x": [A], "y": [C, D], "z": [B]}, 1, 1, 1,
                     id="a member joins and the least moves"),
        pytest.param({"x": [A, B], "y": [C, D]}, {"x": [C], "y": [A, D], "z": [B]}, 3, 1, 1,
                     id="a member joins and more than needed moves"),
        pytest.param({"x": [A, B], "y": [C, D]}, {"x": [A, B, C, D]}, 2, 2, 0,
                     id="a member leaves: its queues have to move"),
        pytest.param({"x": [A, B, C, D], "y": []}, {"x": [A, B, C, D], "y": []}, 0, 2, 4,
                     id="uneven before and after: nothing moved, two should have"),
        pytest.param({}, {"x": [A, B], "y": [C]}, 0, 0, 1, id="a first assignment moves nothing"),
        pytest.param({"x": [A, B]}, {"x": [A], "y": [C]}, 0, 0, 0,
                     id="a queue that vanished and one that is new did not move"),
        pytest.param({"x": [A, B], "y": [C, D]}, {"x": [], "y": []}, 0, 0, 0, id="no queues"),
        pytest.param({"x": [A]}, {}, 0, 0, 0, id="no members"),
    ],
)  # fmt: skip
def test_moves_and_spread(before, after, moves, least, spread):
    measures = measure(before, after)
    assert (measures.moves, measures.least_moves, measures.spread) == (moves, least, spread)


def test_measures_name_their_numbers():
    assert measure({"x": [A, B], "y": []}, {"x": [A, B], "y": []}) == Measures(
        moves=0, least_moves=1, spread=2, fairness=0.5
    )


@pytest.mark.parametrize(
    ("sizes", "index"),
    [([], 1.0), ([0, 0], 1.0), ([3, 3, 3], 1.0), ([4, 0, 0, 0], 0.25), ([1, 2], 0.9)],
)
def test_jains_index(sizes, index):
    assert jain_index(sizes) == pytest.approx(index)


MEMBERS = ["x", "y", "z"]


@given(
    old=st.lists(st.sampled_from([*MEMBERS, "gone", None]), min_size=5, max_size=5),
    members=st.lists(st.sampled_from(MEMBERS), min_size=1, unique=True),
)
def test_least_moves_is_what_trying_every_even_assignment_finds(old, members):
    queues = QUEUES[:5]
    before = {}
    for queue, owner in zip(queues, old, strict=True):
        if owner is not None:
            before.setdefault(owner, []).append(queue)
    best = None
    for owners in product(members, repeat=len(queues)):
        after = {member: [] for member in members}
        for queue, owner in zip(queues, owners, strict=True):
            after[owner].append(queue)
        measures = measure(before, after)
        if measures.spread <= 1:
            best = measures.moves if best is None else min(best, measures.moves)
            promised = measures.least_moves
    assert promised == best

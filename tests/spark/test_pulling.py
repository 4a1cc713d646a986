from __future__ import annotations

import pytest

from gimbalmq.spark.pulling import Advance, AskAgain, Gone, judge
from gimbalmq.wire.headers import PullResponse


@pytest.mark.rule("W2.4", "W5.2")
@pytest.mark.parametrize(
    ("asked", "code", "following", "minimum", "maximum", "filtered", "verdict"),
    [
        pytest.param(100, 0, 132, 0, 500, False, Advance(132), id="found"),
        pytest.param(100, 0, 112, 0, 500, False, Advance(112), id="found, cut short by size"),
        pytest.param(5, 0, 37, 20, 500, False, Advance(37), id="found just before it was deleted"),
        pytest.param(100, 20, 900, 0, 999, True, Advance(900), id="nothing matched"),
        pytest.param(100, 20, 900, 0, 999, False, Gone(900), id="skipped without a filter"),
        pytest.param(100, 20, 900, 200, 999, True, Gone(200), id="deleted while filtering"),
        pytest.param(100, 20, 100, 0, 999, True, AskAgain(), id="a slave that does not move"),
        pytest.param(500, 20, 500, 0, 400, False, Gone(400), id="a slave, beyond its end"),
        pytest.param(5, 20, 5, 20, 400, False, Gone(20), id="a slave, before its start"),
        pytest.param(500, 19, 500, 0, 500, False, Gone(500), id="the queue ends here"),
        pytest.param(100, 19, 300, 0, 500, False, Gone(300), id="stored data is missing"),
        pytest.param(100, 19, 100, 0, 500, False, AskAgain(), id="there, and not found"),
        pytest.param(5, 21, 20, 20, 500, False, Gone(20), id="deleted by retention"),
        pytest.param(600, 21, 500, 0, 500, False, Gone(500), id="beyond the end"),
        pytest.param(7, 21, 0, 0, 0, False, Gone(0), id="a topic made again"),
        pytest.param(100, 21, 40, 0, 500, False, AskAgain(), id="a reset of the group's offset"),
    ],
)
def test_each_answer_has_one_meaning(asked, code, following, minimum, maximum, filtered, verdict):
    response = PullResponse(following, minimum, maximum, 0)
    assert judge(asked, code, response, filtered=filtered) == verdict

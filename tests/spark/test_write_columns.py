from __future__ import annotations

import pytest

from gimbalmq.errors import ConfigurationError
from gimbalmq.spark.schema import COLUMNS
from gimbalmq.spark.write_columns import layout_of


def fields(*columns):
    """Fields with the names and types given as `name type`."""
    return [Field(*column.split(" ", 1)) for column in columns]


class Field:
    def __init__(self, name, kind):
        self.name = name
        self.dataType = self
        self._kind = kind

    def simpleString(self):  # noqa: N802 - PySpark's name
        return self._kind


def test_a_frame_that_was_read_can_be_written():
    layout = layout_of(fields(*(f"{name} {kind}" for name, kind in COLUMNS.items())))
    assert {"topic", "body", "keys", "tags", "properties"} == set(layout.places)


def test_names_are_compared_whatever_their_case():
    assert layout_of(fields("Tags string", "BODY string"), topic="t").places == {
        "tags": 0,
        "body": 1,
    }


def test_the_id_column_may_have_any_name():
    layout = layout_of(fields("body binary", "order_id bigint"), id_column="Order_ID", topic="t")
    assert layout.id_place == 1


@pytest.mark.parametrize(
    ("columns", "options", "part"),
    [
        (["value string"], {"topic": "t"}, "column 'value' is no part of a message"),
        (["body string", "tag string"], {"topic": "t"}, "did you mean 'tags'?"),
        (["tags string"], {"topic": "t"}, "the frame has no column 'body'"),
        (["body string"], {}, "give option 'topic', or add a column 'topic'"),
        (["body int"], {"topic": "t"}, "column 'body' has type int, but a message needs binary"),
        (["body string", "deliver_at bigint"], {"topic": "t"}, "needs timestamp"),
        (["body string", "BODY string"], {"topic": "t"}, "column 'body' more than once"),
        (["body string"], {"topic": "t", "id_column": "id"}, "option 'idColumn' names 'id'"),
        (["body string", "id double"], {"topic": "t", "id_column": "id"}, "has type double"),
    ],
)
def test_a_frame_that_cannot_be_written_is_refused(columns, options, part):
    with pytest.raises(ConfigurationError) as caught:
        layout_of(fields(*columns), **options)
    assert part in str(caught.value)

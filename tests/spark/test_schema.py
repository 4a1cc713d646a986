from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import MapType, StringType, StructField, StructType
from pyspark.sql.types import _parse_datatype_json_string as from_json

from gimbalmq.errors import ConfigurationError
from gimbalmq.spark.schema import COLUMNS, arrow_schema, columns_of_schema, ddl, parse_columns
from gimbalmq.wire.columns import COLUMNS as DECODED
from gimbalmq.wire.columns import column_schema

TYPES = {
    "string": "string", "int": "integer", "bigint": "long", "binary": "binary",
    "timestamp": "timestamp",
}  # fmt: skip


def struct(*fields):
    return StructType(list(fields)).fields


def field(name, kind, nullable=True):
    return StructField(name, from_json(f'"{kind}"'), nullable)


def test_every_column_is_one_that_the_decoder_knows_and_none_is_left_out():
    assert set(COLUMNS) == set(DECODED)


def test_the_columns_are_those_of_the_contract():
    by_type = {}
    for name, kind in COLUMNS.items():
        by_type.setdefault(kind, set()).add(name)
    assert by_type == {
        "string": {"topic", "broker", "message_id", "keys", "tags", "born_host"},
        "int": {"queue_id", "sys_flag", "reconsume_times"},
        "bigint": {"queue_offset"},
        "binary": {"body"},
        "timestamp": {"born_timestamp", "store_timestamp"},
        "map<string,string>": {"properties"},
    }


def test_the_schema_text_quotes_names():
    assert ddl(parse_columns("queue_offset,properties")) == (
        "`queue_offset` bigint, `properties` map<string,string>"
    )


def test_the_arrow_types_are_those_that_the_decoder_gives():
    names = list(COLUMNS)
    assert arrow_schema(parse_columns(None)).equals(column_schema(names))


def test_a_schema_of_the_user_narrows_the_columns_in_its_order():
    columns = columns_of_schema(struct(field("queue_offset", "long"), field("BODY", "binary")))
    assert [column.source for column in columns] == ["queue_offset", "body"]
    assert arrow_schema(columns).names == ["queue_offset", "BODY"]


@pytest.mark.parametrize("name", [name for name, kind in COLUMNS.items() if kind in TYPES])
def test_every_column_can_be_asked_for_with_its_own_type(name):
    (column,) = columns_of_schema(struct(field(name, TYPES[COLUMNS[name]])))
    assert column.source == name


def test_a_not_null_column_is_not_nullable_in_arrow():
    (column,) = columns_of_schema(struct(field("body", "binary", nullable=False)))
    assert not arrow_schema([column]).field("body").nullable


def test_a_map_without_null_values_is_one_in_arrow():
    kind = MapType(StringType(), StringType(), valueContainsNull=False)
    (column,) = columns_of_schema(struct(StructField("properties", kind)))
    value = pa.field("value", pa.string(), nullable=False)
    assert arrow_schema([column]).field("properties").type == pa.map_(pa.string(), value)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ([field("offset", "long")], "the schema names the unknown column 'offset'"),
        ([field("bodyy", "binary")], "did you mean 'body'?"),
        ([field("body", "string")], "column 'body' of the schema has type string, but the source has binary"),
        ([field("queue_offset", "integer")], "read it as bigint and cast it afterwards"),
        ([field("tags", "string", nullable=False)], "column 'tags' of the schema is NOT NULL"),
        ([field("body", "binary"), field("Body", "binary")], "names column 'body' more than once"),
    ],
)  # fmt: skip
def test_a_column_that_the_source_cannot_give_is_refused(fields, text):
    with pytest.raises(ConfigurationError) as caught:
        columns_of_schema(struct(*fields))
    assert text in str(caught.value)

from gimbalmq.spark.option_names import check_names


def test_names_that_spark_adds_by_itself_are_let_through():
    check_names({"checkpointLocation": "/c", "queryName": "q", "topic": "orders"})

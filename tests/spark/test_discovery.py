"""What Spark finds, and what is loaded for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

import gimbalmq.spark


def run(program):
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )


def test_the_module_that_spark_looks_for_has_the_source():
    from pyspark_rocketmq import DefaultSource

    assert DefaultSource is gimbalmq.spark.RocketMQDataSource


def test_finding_the_source_loads_neither_arrow_nor_numpy_and_starts_no_thread():
    program = (
        "import sys, threading; import pyspark.sql.datasource; before = set(sys.modules); "
        "import pyspark_rocketmq; "
        "heavy = {'pyarrow', 'numpy', 'pandas', 'gimbalmq.testing'}; "
        "print(sorted(heavy & (set(sys.modules) - before)), threading.active_count())"
    )
    assert run(program).stdout == "[] 1\n"


def test_importing_the_spark_package_does_not_load_pyspark():
    program = "import sys, gimbalmq.spark; print('pyspark' in sys.modules)"
    assert run(program).stdout == "False\n"


WITHOUT_PYSPARK = (
    "import sys, importlib.abc\n"
    "class Hide(importlib.abc.MetaPathFinder):\n"
    "    def find_spec(self, name, path=None, target=None):\n"
    "        if name.partition('.')[0] == 'pyspark': raise ModuleNotFoundError(name)\n"
    "sys.meta_path.insert(0, Hide())\n"
    "import importlib.util as u; find = u.find_spec\n"
    "u.find_spec = lambda name, *a: None if name == 'pyspark' else find(name, *a)\n"
)


def test_without_pyspark_the_package_says_what_to_install():
    program = WITHOUT_PYSPARK + (
        "try:\n    import gimbalmq.spark\nexcept ImportError as error:\n    print(error)\n"
    )
    assert 'pip install "gimbalmq[spark]"' in run(program).stdout


def test_without_pyspark_the_module_that_spark_looks_for_hides_no_other_source():
    program = WITHOUT_PYSPARK + (
        "import pyspark_rocketmq as m; print(hasattr(m, 'DefaultSource'), m.__all__)"
    )
    result = run(program)
    assert result.stdout == "False []\n"
    assert "format 'rocketmq' is not available" in result.stderr


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nosuch"):
        _ = gimbalmq.spark.nosuch
    assert set(dir(gimbalmq.spark)) == set(gimbalmq.spark.__all__)

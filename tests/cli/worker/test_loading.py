import pytest

from gimbalmq import PushConsumer
from gimbalmq.cli.worker.loading import check_target, load
from gimbalmq.errors import ConfigurationError


@pytest.fixture
def module(tmp_path, monkeypatch, unique_name):
    """Writes a module that can be imported; returns its name."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(text):
        name = unique_name("job").replace("-", "_")
        (tmp_path / f"{name}.py").write_text(text, "utf-8")
        return name

    return write


CONSUMER = "from gimbalmq import PushConsumer\none = PushConsumer('g', nameserver='127.0.0.1:1')\n"


def test_a_consumer_is_found_and_a_function_is_asked_for_one(module):
    name = module(f"{CONSUMER}def make():\n    return one\n")
    assert isinstance(load(f"{name}:one"), PushConsumer)
    assert load(f"{name}:make") is load(f"{name}:one")


@pytest.mark.parametrize("target", ["shop", "shop:", ":consumer", "shop:a.b", "sh op:x", ""])
def test_what_is_no_target_is_refused_with_an_example(target):
    with pytest.raises(ConfigurationError, match=r"shop\.billing:consumer"):
        check_target(target)


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (CONSUMER, "other", "has no 'other'; its consumers are .*:one"),
        ("x = 3\n", "x", "is int, not a PushConsumer"),
        ("def make():\n    return 3\n", "make", "is int, not a PushConsumer"),
        ("def make():\n    raise OSError('gone')\n", "make", r"make\(\) failed: OSError: gone"),
        ("import no_such_thing\n", "x", "cannot be imported: ModuleNotFoundError.*line 1"),
        ("1 / 0\n", "x", "cannot be imported: ZeroDivisionError.*line 1"),
        ("def\n", "x", "cannot be imported: SyntaxError"),
    ],
)
def test_what_cannot_run_says_why(module, text, name, words):
    with pytest.raises(ConfigurationError, match=words):
        load(f"{module(text)}:{name}")


def test_a_missing_module_says_where_it_was_looked_for():
    with pytest.raises(ConfigurationError, match=r"no module 'no_such_shop'.*PYTHONPATH"):
        load("no_such_shop.billing:consumer")

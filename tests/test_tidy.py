"""The style guide as a test: budgets, names and idioms that a linter does not know."""

from __future__ import annotations

import ast
import functools
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
BANNED_MODULES = {"utils", "util", "common", "helpers", "helper", "manager", "misc"}
BANNED_CLASS_ENDINGS = ("Impl", "Manager", "Helper", "Utils")
#: Only these may write to the terminal or end the process.
TALKING_LAYERS = {"cli"}
#: These may say on standard error why the user is waiting for minutes (a download).
NOTICING_LAYERS = {"testing"}
#: Reads a clock, a socket or randomness nowhere, also not through a function-level import.
PURE_LAYERS = {"errors.py", "model", "core", "wire", "flows", "balance", "balance.py"}
IMPURE_MODULES = {
    "asyncio", "logging", "os", "queue", "random", "select", "selectors", "socket", "ssl",
    "subprocess", "threading", "time",
}  # fmt: skip


def sources(*folders):
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


ALL = sources("src", "tests", "tools", "bench")
LIBRARY = sources("src")


def each(paths):
    """Make one test of a check of one file: a test for each would take longer to report than to run."""

    def made(check):
        def test():
            wrong = {}
            for path in paths:
                try:
                    check(path)
                except AssertionError as error:
                    wrong[path.relative_to(ROOT).as_posix()] = str(error)
            assert wrong == {}

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return made


@functools.cache
def parse(path):
    return ast.parse(path.read_text("utf-8"), filename=str(path))


def functions(tree):
    return [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def lines_without_docstring(function):
    first = function.body[0]
    length = function.end_lineno - function.lineno + 1
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
        length -= first.end_lineno - first.lineno + 1
    return length


def layer(path):
    """The layer of a library module: its first folder or file below the package."""
    return path.relative_to(ROOT / "src").parts[1]


@each(ALL)
def test_modules_stay_within_their_budget(path):
    assert len(path.read_text("utf-8").splitlines()) <= MODULE_LINES_MAX


@each(ALL)
def test_functions_stay_within_their_budget(path):
    long = {f.name: lines_without_docstring(f) for f in functions(parse(path))}
    assert {name: lines for name, lines in long.items() if lines > FUNCTION_LINES_MAX} == {}


@each(ALL)
def test_modules_and_classes_have_names_that_say_something(path):
    assert path.stem.strip("_") not in BANNED_MODULES
    classes = [n.name for n in ast.walk(parse(path)) if isinstance(n, ast.ClassDef)]
    assert [name for name in classes if name.endswith(BANNED_CLASS_ENDINGS)] == []


@each(LIBRARY)
def test_public_modules_say_what_they_decide_and_what_they_export(path):
    tree = parse(path)
    assert ast.get_docstring(tree), "a module starts with what it decides"
    defined = public_names(tree)
    if path.stem.startswith("_") and path.stem != "__init__":
        return
    exported = declared_exports(tree)
    assert exported is not None or not defined, f"no __all__, but it defines {sorted(defined)}"
    assert len(set(exported or [])) == len(exported or []), "__all__ names something twice"


def public_names(tree):
    """Names that the module itself defines at its top, imported ones aside."""
    names = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Assign(targets=targets):
                names |= {t.id for t in targets if isinstance(t, ast.Name)}
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return {name for name in names if not name.startswith("_")}


def declared_exports(tree):
    for node in tree.body:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id="__all__")], value=value)
                | ast.AnnAssign(target=ast.Name(id="__all__"), value=value)
            ):
                return [ast.unparse(element) for element in getattr(value, "elts", [])]
    return None


@each(ALL)
def test_an_open_end_carries_an_issue_number(path):
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline)
    comments = [token.string for token in tokens if token.type == tokenize.COMMENT]
    marks = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!\(#\d+\))")
    assert [comment for comment in comments if marks.search(comment)] == []


@each(ALL)
def test_no_error_is_caught_without_being_named(path):
    bare = [
        n.lineno for n in ast.walk(parse(path)) if isinstance(n, ast.ExceptHandler) and not n.type
    ]
    assert bare == []


@each(ALL)
def test_no_error_is_swallowed_in_silence(path):
    """A handler of every error that does nothing hides our own mistakes."""
    silent = [
        handler.lineno
        for handler in ast.walk(parse(path))
        if isinstance(handler, ast.ExceptHandler)
        and handler.type is not None
        and ast.unparse(handler.type) in {"Exception", "BaseException"}
        and all(isinstance(n, ast.Pass) or is_ellipsis(n) for n in handler.body)
    ]
    assert silent == []


def is_ellipsis(node):
    return isinstance(node, ast.Expr) and ast.unparse(node) == "..."


@each(LIBRARY)
def test_the_library_neither_prints_nor_exits(path):
    if layer(path) in TALKING_LAYERS:
        return
    calls = [node for node in ast.walk(parse(path)) if isinstance(node, ast.Call)]
    if layer(path) in NOTICING_LAYERS:
        calls = [call for call in calls if not prints_to_stderr(call)]
    called = {ast.unparse(call.func) for call in calls}
    assert called & {"print", "sys.exit", "exit", "quit", "os._exit"} == set()


def prints_to_stderr(call):
    keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    return ast.unparse(call.func) == "print" and keywords.get("file") == "sys.stderr"


@each(LIBRARY)
def test_pure_layers_import_nothing_that_touches_the_world(path):
    """Import-linter sees imports at the top; this also sees those inside functions."""
    if layer(path) not in PURE_LAYERS:
        return
    imported = set()
    for node in ast.walk(parse(path)):
        match node:
            case ast.Import(names=names):
                imported |= {name.name.partition(".")[0] for name in names}
            case ast.ImportFrom(module=str(module), level=0):
                imported.add(module.partition(".")[0])
    assert imported & IMPURE_MODULES == set()


@each(LIBRARY)
def test_nothing_starts_at_import(path):
    """No thread, socket or process may exist after an import: Spark forks its workers."""
    started = [
        ast.unparse(node.value.func)
        for node in parse(path).body
        if isinstance(node, ast.Expr | ast.Assign | ast.AnnAssign)
        and isinstance(node.value, ast.Call)
        and re.search(r"(Thread|Timer|socket|Popen|Executor|Pool)$", ast.unparse(node.value.func))
    ]
    assert started == []


def test_files_that_are_known_to_take_long_exist():
    listed = re.findall(r'"(tests/\S+\.py)"', (ROOT / "tests/conftest.py").read_text("utf-8"))
    assert len(listed) > 5
    assert [name for name in listed if not (ROOT / name).is_file()] == []


def test_a_check_that_fails_names_its_files():
    @each([ROOT / "tests" / "test_tidy.py", ROOT / "tests" / "conftest.py"])
    def checked(path):
        assert path.stem != "conftest"

    with pytest.raises(AssertionError, match=r"tests/conftest\.py"):
        checked()


def test_the_budgets_find_what_they_are_for():
    """The measures themselves, on a module that breaks them."""
    tree = ast.parse('def f():\n    """Two\n    lines."""\n    return 1\n\nX = 1\n_y = 2\n')
    (function,) = functions(tree)
    assert lines_without_docstring(function) == 2
    assert public_names(tree) == {"f", "X"}
    assert declared_exports(tree) is None
    assert declared_exports(ast.parse("__all__ = ['a', 'b']")) == ["'a'", "'b'"]

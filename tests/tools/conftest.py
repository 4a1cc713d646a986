"""The repository's scripts, loaded from their files: they are no part of the package."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

_TOOLS = Path(__file__).parents[2] / "tools"


@pytest.fixture
def tool(request, monkeypatch) -> ModuleType:
    """The script that the test module is named after: test_locks.py gets tools/locks.py."""
    name = request.module.__name__.rpartition(".")[2].removeprefix("test_")
    monkeypatch.syspath_prepend(str(_TOOLS))
    specification = importlib.util.spec_from_file_location(
        f"repository_{name}", _TOOLS / f"{name}.py"
    )
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, specification.name, module)
    specification.loader.exec_module(module)
    return module

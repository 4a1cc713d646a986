"""Where the vectors are: the folder in GIMBALMQ_VECTORS, else the repository's own copy."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def vectors_dir() -> Path:
    return Path(os.environ.get("GIMBALMQ_VECTORS") or Path(__file__).parents[1] / "vectors")

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adaptive_sampling.corpus import TokenStore

sys.path.insert(0, str(Path(__file__).parent))  # for reference


@pytest.fixture
def write_store(tmp_path) -> Callable[..., TokenStore]:
    """Writes documents whole into a new store; EOS is 0 unless said otherwise."""
    count = iter(range(10**6))

    def write(*documents: Any, **settings: Any) -> TokenStore:
        settings = {"vocab_size": 70_000, "eos_id": 0, "append_eos": False, **settings}
        return TokenStore.write(tmp_path / f"store{next(count)}", documents, **settings)

    return write

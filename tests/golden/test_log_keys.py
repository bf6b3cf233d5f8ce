"""The keys that users' dashboards depend on: frozen, and explained in the docs."""

import json
from pathlib import Path

KEYS = json.loads((Path(__file__).parent / "log_keys.json").read_text())
DOCS = Path(__file__).parents[2] / "docs" / "callback.md"


def test_each_key_is_explained_in_the_docs_and_no_other():
    rows = [line for line in DOCS.read_text().splitlines() if line.startswith("| `sampling/")]
    assert sorted(row.split("`")[1] for row in rows) == sorted(KEYS["scalars"] + KEYS["histograms"])

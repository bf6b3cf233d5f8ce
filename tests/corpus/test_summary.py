import re
import xml.etree.ElementTree

import pytest

from adaptive_sampling.corpus import TokenStore
from adaptive_sampling.corpus.summary import PrepareSummary, SourceSummary, category, format_summary, lengths_picture


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("exact duplicate of a/b.txt", "exact duplicate"),
        ("near-copy of a, b", "near-copy"),
        ("12 characters, below 100", "too short"),
        ("0.50 of the characters printable, below 0.90", "too little printable"),
        ("not JSON: it is not UTF-8", "not JSON"),
        ("byte 3 is not UTF-8, and cp1252 is only 0.50 sure, below 0.90", "not UTF-8"),
    ],
)
def test_reasons_of_one_kind_are_counted_together(reason, kind):
    assert category(reason) == kind


def source(name, train, held_out, **more):
    counts = {"train_tokens": 10, "validation_tokens": 5, "bytes": 30, "exclusions": (), **more}
    return SourceSummary(name, train + held_out, 0, 0, train, held_out, **counts)


def test_a_source_without_held_out_documents_is_pointed_out(tmp_path):
    shown = format_summary(PrepareSummary(tmp_path, 10, (source("a", 3, 2), source("b", 1, 0), source("c", 0, 0))))
    assert shown.splitlines()[-1] == "no document is held out of b (1 in all)"
    nothing = format_summary(PrepareSummary(tmp_path, 10, (source("a", 3, 0), source("b", 1, 0), source("c", 0, 0))))
    assert "held out" not in nothing


def test_the_picture_has_one_scale_and_shares_of_tokens(tmp_path):
    lengths = {"train": [1, 3, 3, 60], "validation": [5]}
    stores = {
        name: TokenStore.write(tmp_path / name, [[1] * n for n in own], vocab_size=9, eos_id=0, append_eos=False)
        for name, own in lengths.items()
    }
    picture = lengths_picture(stores)
    xml.etree.ElementTree.fromstring(picture)
    titles = re.findall("<title>(.*?)</title>", picture)
    assert len(titles) == 2 * 6
    assert titles[1] == "2 to 3 tokens: 2 documents, 9.0% of the tokens"
    assert titles[5] == "32 to 63 tokens: 1 documents, 89.6% of the tokens"
    assert titles[8] == "4 to 7 tokens: 1 documents, 100.0% of the tokens"


def test_a_picture_of_no_documents_is_drawn(tmp_path):
    empty = TokenStore.write(tmp_path / "e", [], vocab_size=9, eos_id=0)
    xml.etree.ElementTree.fromstring(lengths_picture({"train": empty}))

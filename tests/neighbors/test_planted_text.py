"""Near-copies planted in real text: half the windows are copies with 3 % of their tokens changed."""

import numpy as np
import pytest

from adaptive_sampling.corpus import embedded_documents
from adaptive_sampling.neighbors import find_near_copies, hashed_features

WIDTH = 128
# These are half boilerplate by nature: tables of codecs, licences and headings of generated files.
SKIPPED = ("encodings", "pydoc_data", "idlelib", "test", "ensurepip")


class Rows:
    def __init__(self, tokens):
        self.tokens = tokens

    def __len__(self):
        return len(self.tokens)

    def read(self, ids):
        return {"input_ids": self.tokens[ids], "labels": self.tokens[ids]}


def real_windows(most):
    """Windows of words and signs, numbered by a hash, and the document of each."""
    import re
    import zlib

    windows, documents = [], []
    for number, document in enumerate(embedded_documents()):
        if any(name in document.key for name in SKIPPED):
            continue
        words = re.findall(r"\w+|[^\w\s]", document.text)
        tokens = np.array([zlib.crc32(word.encode()) & 0xFFFF for word in words], np.int64)
        for start in range(0, len(tokens) - WIDTH + 1, WIDTH):
            windows.append(tokens[start : start + WIDTH])
            documents.append(number)
        if len(windows) >= most:
            break
    return np.array(windows[:most]), np.array(documents[:most])


def planted(rng, windows, documents, family):
    """As many copies as windows: one set of `family`, others of 2 to 9; each copy is a document of its own."""
    count = len(windows)
    sizes = [family - 1]
    while sum(sizes) < count:
        sizes.append(min(int(rng.integers(1, 9)), count - sum(sizes)))
    originals = rng.permutation(count)[: len(sizes)]
    of_copy = np.repeat(originals, sizes)
    copies = windows[of_copy]
    changed = rng.random(copies.shape) < 0.03
    copies = np.where(changed, rng.choice(windows.ravel(), copies.shape), copies)
    truth = np.concatenate([np.arange(count), of_copy])
    return np.concatenate([windows, copies]), truth, np.concatenate([documents, 10**6 + np.arange(count)])


def check(num_windows, family):
    rng = np.random.default_rng(0)
    windows, documents = real_windows(num_windows)
    # Decisions that the text itself makes are no errors of what was planted: windows like others are left out.
    natural = find_near_copies(hashed_features(Rows(windows)), documents, threshold=0.75)
    alone = natural.sizes == 1
    windows, documents = windows[alone], documents[alone]
    assert len(windows) > num_windows / 2
    rows, truth, groups = planted(rng, windows, documents, family)
    features = hashed_features(Rows(rows))
    found = find_near_copies(features, groups)
    is_copy, said = np.bincount(truth)[truth] > 1, found.sizes > 1
    precision = (said & is_copy).sum() / said.sum()
    recall = (said & is_copy).sum() / is_copy.sum()
    print(f"threshold {found.threshold:.3f}, precision {precision:.4f}, recall {recall:.4f}; {found.neighbors}")
    assert found.histogram.estimated
    assert precision >= 0.95
    assert recall >= 0.95
    largest = np.bincount(truth).argmax()
    # The set hangs together; a copy of which thrice as many tokens changed as of the others may stay alone.
    assert np.unique(found.sets[truth == largest], return_counts=True)[1].max() >= 0.99 * (truth == largest).sum()
    exact = found if found.neighbors.index == "exact" else find_near_copies(features, groups, index="exact")
    approximate = find_near_copies(features, groups, index="ivf")
    ranks = [np.unique(1 / copies.sizes, return_inverse=True)[1] for copies in (exact, approximate)]
    assert np.corrcoef(ranks)[0, 1] >= 0.99


def test_planted_near_copies_in_real_text_are_found():
    check(1600, 300)


@pytest.mark.soak
def test_planted_near_copies_in_much_real_text_are_found():
    check(12_000, 500)

import numpy as np

from adaptive_sampling.corpus.duplicates import features_of, first_of_equal, fitted, near_copies, sketch


def sets_of(documents):
    def short(number):
        return sketch(documents[number])

    lengths = np.array([len(sketch(one)) for one in documents])
    return near_copies(features_of(fitted(short, lengths), short, lengths), lambda number: documents[number])


def test_first_of_equal_points_at_the_first_candidate():
    digests = np.zeros((6, 16), np.uint8)
    digests[:, 0] = [1, 2, 1, 0, 2, 1]
    candidates = np.array([False, True, True, False, True, True])
    assert first_of_equal(digests, candidates).tolist() == [-1, 1, 2, -1, 1, 2]
    assert first_of_equal(digests[:0], candidates[:0]).tolist() == []


def test_sketches_of_near_copies_share_most_tokens_wherever_text_is_inserted():
    rng = np.random.default_rng(0)
    long = rng.integers(0, 5000, 50_000)
    inserted = np.concatenate([long[:100], rng.integers(0, 5000, 300), long[100:]])
    ours, theirs, other = sketch(long), sketch(inserted), sketch(rng.integers(0, 5000, 50_000))
    assert 1024 <= len(ours) <= 2048
    common = len(np.intersect1d(ours, theirs)) / len(np.union1d(ours, theirs))
    assert common > 0.9
    assert len(np.intersect1d(ours, other)) / len(np.union1d(ours, other)) < 0.5
    assert len(sketch(np.zeros(5000, np.uint16))) <= 2048


def test_near_copies_join_edited_documents_and_no_others():
    rng = np.random.default_rng(1)
    documents = [rng.zipf(1.3, length) % 4000 for length in [400] * 30 + [5000] * 3]
    edited = [documents[3].copy(), np.concatenate([documents[31][:2000], [7] * 20, documents[31][2000:]])]
    edited[0][rng.choice(400, 8, replace=False)] = 1
    everything = [*documents, *edited]
    sets = sets_of(everything)
    wanted = np.arange(len(everything))
    wanted[[33, 34]] = [3, 31]
    assert sets.tolist() == wanted.tolist()


def test_few_long_texts_of_one_language_are_no_near_copies():
    rng = np.random.default_rng(2)
    documents = [rng.zipf(1.2, 20_000) % 3000 for _ in range(3)]
    documents.append(np.where(rng.random(20_000) < 0.02, 5, documents[1]))
    sets = sets_of(documents)
    assert sets.tolist() == [0, 1, 2, 1]

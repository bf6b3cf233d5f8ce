"""Shares of tokens per source, through the public sampler."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adaptive_sampling import AdaptiveSampler, StateMismatchError, TokenStore, WindowConfig, WindowDataset
from adaptive_sampling.sampling._sources import source_map
from adaptive_sampling.testing import assert_resumes_exactly


def interleaved(counts, seed=0):
    sources = np.repeat(np.arange(len(counts)), counts)
    np.random.default_rng(seed).shuffle(sources)
    return sources


def counts_of(sampler, sources, draws):
    return np.bincount(sources[sampler.draw(draws)], minlength=sources.max() + 1)


@pytest.fixture
def store(tmp_path):
    """Source "long" has 30 documents of 9 tokens, "short" 50 of 3: with windows of 8, 8 and 2 targets."""
    documents = [[1] * 9] * 30 + [[1] * 3] * 50
    sources = ["long"] * 30 + ["short"] * 50
    order = np.random.default_rng(0).permutation(80)
    return TokenStore.write(
        tmp_path / "store",
        [documents[i] for i in order],
        vocab_size=4,
        eos_id=0,
        sources=[sources[i] for i in order],
        keys=list(range(80)),
        append_eos=False,
    )


def test_shares_are_of_tokens_not_of_draws(store):
    dataset = WindowDataset(store, WindowConfig(8, tail="pad"))
    sampler = AdaptiveSampler(dataset, source_shares={"long": 0.5, "short": 0.5}, num_draws=1000, seed=0)
    probabilities = sampler.probabilities()
    sources = dataset.sources()
    long = store.source_names.index("long")
    assert probabilities[sources == long].sum() == pytest.approx(0.2)
    assert probabilities[sources != long].sum() == pytest.approx(0.8)
    ids = sampler.draw(1000)
    targets = dataset.valid_targets(ids)
    assert targets[sources[ids] == long].sum() == 1600
    assert targets[sources[ids] != long].sum() == 1600


def test_shares_of_tokens_follow_the_mean_length_under_the_weights(store):
    # In source 0 the windows hold 8 or 2 targets; weights 3 : 1 make a draw hold 6.5 on average.
    class Lengths:
        source_names = ("mixed", "even")

        def __len__(self):
            return 100

        def sources(self, ids):
            return np.asarray(ids) // 50

        def valid_targets(self, ids):
            return np.where(np.asarray(ids) >= 50, 5, np.where(np.asarray(ids) % 2 == 0, 8, 2))

    sampler = AdaptiveSampler(Lengths(), source_shares={"mixed": 1, "even": 1}, num_draws=2300, seed=0)
    weights = np.ones(100)
    weights[:50:2] = 3
    sampler.set_weights(weights)
    ids = sampler.draw(2300)
    tokens = Lengths().valid_targets(ids)
    assert np.bincount(ids // 50).tolist() == [1000, 1300]
    assert tokens[ids < 50].sum() == tokens[ids >= 50].sum() == 6500


def test_weights_inside_a_source_do_not_move_its_share():
    sources = interleaved([50, 30, 20])
    shares = {0: 0.2, 1: 0.3, 2: 0.5}
    sampler = AdaptiveSampler(100, sources=sources, source_shares=shares, num_draws=200, seed=0)
    sampler.set_weights(np.where(sources == 0, 1000.0, 1.0))
    assert counts_of(sampler, sources, 200).tolist() == [40, 60, 100]
    sampler.update_weights(np.flatnonzero(sources == 2)[:3], [50.0, 0.0, 7.0])
    assert counts_of(sampler, sources, 200).tolist() == [40, 60, 100]


def test_equal_weights_make_each_source_a_shuffle_of_its_own():
    sources = interleaved([40, 10])
    sampler = AdaptiveSampler(50, sources=sources, source_shares={0: 0.5, 1: 0.5}, num_draws=80, seed=3)
    for _ in range(3):
        counts = np.bincount(sampler.draw(80), minlength=50)
        assert set(counts[sources == 0]) == {1}
        assert set(counts[sources == 1]) == {4}


@pytest.mark.parametrize("draws", ["systematic", "multinomial"])
@pytest.mark.parametrize("stratified", [False, True])
def test_no_source_drifts_from_its_share(draws, stratified):
    sources = interleaved([50, 30, 20])
    shares = {0: 0.605, 1: 0.2833, 2: 0.1117}
    sampler = AdaptiveSampler(
        100, sources=sources, source_shares=shares, draws=draws, stratified=stratified, num_draws=37, seed=0
    )
    counts = np.zeros(3)
    for epoch in range(1, 60):
        counts += counts_of(sampler, sources, 37)
        assert (np.abs(counts - np.array(list(shares.values())) * 37 * epoch) < 1 + 1e-6).all()


@pytest.mark.parametrize(
    "shares, batch, expected",
    [([0.5, 0.3, 0.2], 7, [4, 2, 1]), ([0.6, 0.28, 0.12], 10, [6, 3, 1]), ([0.25, 0.25, 0.5], 4, [1, 1, 2])],
)
@pytest.mark.parametrize("block_size", [None, "batch"])
def test_stratified_apportions_the_first_batch_by_largest_remainder(shares, batch, expected, block_size):
    sources = interleaved([50, 30, 20])
    sampler = AdaptiveSampler(
        100,
        sources=sources,
        source_shares=dict(enumerate(shares)),
        stratified=True,
        block_size=batch if block_size else None,
        num_draws=batch * 10,
        seed=1,
    )
    assert counts_of(sampler, sources, batch).tolist() == expected


def test_stratified_keeps_every_batch_within_one_of_its_share():
    sources = interleaved([500, 300, 200])
    shares = np.array([0.62, 0.27, 0.11])
    sampler = AdaptiveSampler(
        1000, sources=sources, source_shares=dict(enumerate(shares)), stratified=True, block_size=16, seed=1
    )
    for _ in range(62):
        assert (np.abs(counts_of(sampler, sources, 16) - shares * 16) < 2).all()


def test_order_of_the_sources_has_no_bias_of_position():
    sources = interleaved([50, 50])
    sampler = AdaptiveSampler(100, sources=sources, source_shares={0: 0.25, 1: 0.75}, block_size=20, seed=5)
    first = np.array([sources[sampler.draw(20)] for _ in range(2000)])
    # 2000 blocks: the standard deviation of a position's share is sqrt(.25 * .75 / 2000) = .0097.
    assert np.abs((first == 0).mean(0) - 0.25).max() < 5 * 0.0097


def test_schedule_moves_the_shares_along_the_stream():
    sources = interleaved([50, 50])
    schedule = [(0, {0: 1, 1: 0}), (1000, {0: 0, 1: 1})]
    sampler = AdaptiveSampler(100, sources=sources, source_shares=schedule, num_draws=250, seed=0)
    seen = [counts_of(sampler, sources, 250)[1] / 250 for _ in range(5)]
    assert seen == pytest.approx([0.125, 0.375, 0.625, 0.875, 1.0], abs=0.01)
    assert sampler.source_shares == {0: 0.0, 1: 1.0}


def test_new_shares_count_from_the_next_block_and_a_share_of_zero_is_never_drawn():
    sources = interleaved([50, 30, 20])
    sampler = AdaptiveSampler(
        100, sources=sources, source_shares={0: 1, 1: 1, 2: 1.01}, num_draws=90, block_size=10, seed=0
    )
    sampler.draw(40)
    sampler.set_source_shares({0: 1, 1: 3, 2: 0})
    counts = counts_of(sampler, sources, 50)
    assert counts[2] == 0
    assert np.abs(counts - [12.5, 37.5, 0]).max() <= 2
    assert counts_of(sampler, sources, 900)[2] == 0


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 12), min_size=2, max_size=4),
    st.integers(4, 60),
    st.integers(1, 20),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_counts_stay_near_their_expectation_under_any_shares_and_weights(counts, num_draws, block, stratified, seed):
    rng = np.random.default_rng(seed)
    sources = interleaved(counts, seed)
    shares = rng.random(len(counts)) + 0.05
    weights = rng.random(len(sources)) ** 3 + 0.01
    weights[rng.random(len(sources)) < 0.2] = 0
    for source in range(len(counts)):
        weights[np.flatnonzero(sources == source)[0]] = 1.0
    sampler = AdaptiveSampler(
        len(sources),
        sources=sources,
        source_shares=dict(enumerate(shares)),
        stratified=stratified,
        num_draws=num_draws,
        block_size=block,
        seed=seed,
    )
    sampler.set_weights(weights)
    seen = np.zeros(len(sources))
    for epoch in range(1, 6):
        seen += np.bincount(sampler.draw(num_draws), minlength=len(sources))
        expected = sampler.probabilities() * num_draws * epoch
        by_source = np.bincount(sources, weights=seen - expected, minlength=len(counts))
        assert (np.abs(by_source) < 1 + 1e-6).all()
        # Within its source a window stays within 1 plus the shift, and the source within 1 of its share.
        assert (np.abs(seen - expected) < 2.5).all()
    assert (seen[weights == 0] == 0).all()


@pytest.mark.parametrize("draws", ["systematic", "multinomial"])
@pytest.mark.parametrize("stratified", [False, True])
def test_resumes_exactly_at_every_phase(draws, stratified):
    sources = interleaved([20, 10, 7])

    def make():
        return AdaptiveSampler(
            37,
            sources=sources,
            source_shares=[(0, {0: 1, 1: 2, 2: 3}), (200, {0: 3, 1: 1, 2: 1})],
            stratified=stratified,
            draws=draws,
            num_draws=50,
            block_size=8,
            seed=2,
        )

    assert_resumes_exactly(make)


def test_resumes_after_weights_and_shares_changed_in_mid_epoch():
    sources = interleaved([20, 10, 7])
    settings = {"sources": sources, "source_shares": {0: 1, 1: 2, 2: 3}, "num_draws": 50, "block_size": 8}
    sampler = AdaptiveSampler(37, **settings, seed=2)
    sampler.draw(13)
    sampler.update_weights([0, 5], [9.0, 0.0])
    sampler.draw(10)
    sampler.set_source_shares({0: 5, 1: 1, 2: 1})
    sampler.draw(3)
    state = sampler.state_dict()
    resumed = AdaptiveSampler(37, **settings)
    resumed.load_state_dict(state)
    assert resumed.draw(200).tolist() == sampler.draw(200).tolist()
    assert resumed.source_shares == sampler.source_shares


def test_states_of_other_shares_or_sources_are_refused():
    sources = interleaved([20, 10])
    state = AdaptiveSampler(30, sources=sources, source_shares={0: 1, 1: 1}, seed=0).state_dict()
    with pytest.raises(StateMismatchError, match="source_shares"):
        AdaptiveSampler(30, sources=sources, source_shares={0: 1, 1: 3}).load_state_dict(state)
    with pytest.raises(StateMismatchError, match="source_shares"):
        AdaptiveSampler(30).load_state_dict(state)
    other = AdaptiveSampler(30, sources=interleaved([19, 11]), source_shares={0: 1, 1: 1}, seed=5)
    with pytest.raises(StateMismatchError, match=r"source_windows \[20, 10\], this sampler has \[19, 11\]"):
        other.load_state_dict(state)
    assert other.seed == 5


@pytest.mark.parametrize(
    "shares, message", [({"long": 1, "short": 1, "web": 1}, "'web'"), ({"long": 1}, "none for 'short'")]
)
def test_unknown_and_missing_sources_are_named(store, shares, message):
    dataset = WindowDataset(store, WindowConfig(8, tail="pad"))
    with pytest.raises(ValueError, match=message):
        AdaptiveSampler(dataset, source_shares=shares)


@pytest.mark.filterwarnings("ignore:50 of 80 documents are shorter")
def test_a_source_without_windows_is_named(store):
    dataset = WindowDataset(store, WindowConfig(8))  # the short documents hold no window
    with pytest.raises(ValueError, match="source 'short', which has no window"):
        AdaptiveSampler(dataset, source_shares={"long": 1, "short": 1})
    sampler = AdaptiveSampler(dataset, source_shares={"long": 1, "short": 0}, seed=0)
    assert len(set(sampler.draw(30).tolist())) == 30


def test_weights_that_would_empty_a_source_are_refused_and_the_old_ones_stay():
    sources = np.array([0, 0, 1, 1])
    sampler = AdaptiveSampler(4, sources=sources, source_shares={0: 1, 1: 1}, seed=0)
    for change in (
        lambda: sampler.set_weights([0, 0, 1, 1]),
        lambda: sampler.update_weights([0, 1], [0, 0]),
        lambda: sampler.schedule_weights(4, [0, 1], [0, 0]),
    ):
        with pytest.raises(ValueError, match="source 0 something to draw"):
            change()
    assert sampler.weights.tolist() == [1, 1, 1, 1]


def test_shares_without_sources_are_refused():
    with pytest.raises(TypeError, match="int does not tell"):
        AdaptiveSampler(4, source_shares={0: 1})
    with pytest.raises(ValueError, match="must have length 4, got 3"):
        AdaptiveSampler(4, sources=[0, 0, 1], source_shares={0: 1, 1: 1})
    with pytest.raises(ValueError, match="need `source_shares`"):
        AdaptiveSampler(4, stratified=True)
    with pytest.raises(RuntimeError, match="has no shares"):
        AdaptiveSampler(4).set_source_shares({0: 1})


def test_source_map_finds_its_way_back(monkeypatch):
    monkeypatch.setattr("adaptive_sampling.sampling._sources._CHUNK", 7)
    sources = interleaved([13, 5, 8, 0, 1])
    mapping = source_map(None, 27, sources)
    ids = np.arange(27)
    found, local = mapping.locate(ids)
    assert [mapping.names[s] for s in found] == sources.tolist()
    for source in range(len(mapping.names)):
        mine = ids[found == source]
        assert local[found == source].tolist() == list(range(len(mine)))
        assert mapping.ids(source, local[found == source]).tolist() == mine.tolist()
        out = np.zeros(27)
        mapping.scatter(source, mapping.gather(source, ids * 2.0), out)
        assert out[mine].tolist() == (mine * 2.0).tolist()


def test_sources_of_several_kinds_are_refused():
    with pytest.raises(TypeError, match="`sources` must be integers or strings throughout, got NoneType, str"):
        AdaptiveSampler(3, source_shares={"a": 1}, sources=["a", None, "a"])


class UnequalWindows:
    """Two sources of 200 windows: of 8 and 2 targets in turn, and of 4."""

    source_names = ("a", "b")
    of = np.repeat([0, 1], 200)
    targets = np.where(of == 1, 4, np.tile([8, 2], 200))

    def __len__(self):
        return 400

    def sources(self, ids):
        return self.of[ids]

    def valid_targets(self, ids):
        return self.targets[ids]


@pytest.mark.parametrize("changed", [np.arange(0, 200, 2), np.arange(1, 200, 2)], ids=["long", "short"])
@pytest.mark.parametrize("draws", ["systematic", "multinomial"])
def test_shares_of_tokens_hold_when_a_few_weights_change_the_mean_length(draws, changed):
    windows = UnequalWindows()

    def make():
        return AdaptiveSampler(windows, num_draws=20_000, draws=draws, seed=1, source_shares={"a": 0.5, "b": 0.5})

    sampler = make()
    sampler.draw(2000)
    sampler.update_weights(changed, np.full(100, 0.01))
    state = sampler.state_dict()
    drawn = sampler.draw(10_000)
    tokens = np.bincount(windows.of[drawn], windows.targets[drawn])
    assert tokens[0] / tokens.sum() == pytest.approx(0.5, abs=0.005)
    assert (windows.of[drawn] == 0).mean() == pytest.approx(sampler.probabilities()[:200].sum(), abs=0.001)
    sampler.update_weights([1, 5], [3.0, 0.5])
    resumed = make()
    resumed.load_state_dict(state)
    assert resumed.draw(10_000).tolist() == drawn.tolist()
    resumed.update_weights([1, 5], [3.0, 0.5])
    assert resumed.draw(12_000).tolist() == sampler.draw(12_000).tolist()


@pytest.mark.parametrize(
    ("shares", "batch"),
    [([0.6, 0.28, 0.12], 7), ([0.1] * 10, 8), ([0.1] * 10, 32), ([0.3, 0.2, 0.1, 0.1, 0.1, *[0.05] * 4], 7)],
)
def test_stratified_batches_hold_each_share_rounded_down_or_up(shares, batch):
    sources = np.repeat(np.arange(len(shares)), 50)
    sampler = AdaptiveSampler(
        len(sources),
        num_draws=60 * batch,
        seed=3,
        block_size=batch,
        stratified=True,
        sources=sources,
        source_shares=dict(enumerate(shares)),
    )
    batches = sources[np.array(list(sampler))].reshape(-1, batch)
    counts = np.array([np.bincount(row, minlength=len(shares)) for row in batches])
    due = np.array(shares) * batch
    assert np.abs(counts - due)[:-1].max() < 1 - 1e-9
    assert np.abs(np.cumsum(counts - due, 0)).max() < 1

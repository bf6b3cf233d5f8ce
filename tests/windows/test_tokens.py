import warnings

import numpy as np
import pytest

from adaptive_sampling.windows import WindowConfig, WindowDataset, audit

sharded = pytest.importorskip("adaptive_sampling.corpus._sharded")


@pytest.mark.parametrize(
    "config",
    [
        WindowConfig(6, 2, tail="pad"),
        WindowConfig(6, pack="concat", tail="cover"),
        WindowConfig(6, pack="concat", eos_dropout=0.5),
        WindowConfig(6, pack="best_fit"),
    ],
)
def test_shards_read_as_one_file(write_store, config):
    lengths = [13, 40, 7, 25, 1, 60]
    store = write_store(*[range(100 * k + 1, 100 * k + length) for k, length in enumerate(lengths)], append_eos=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        dataset = WindowDataset(store, config)
    whole = dataset.read(range(len(dataset)))
    whole_audit = audit(dataset).format()
    store.tokens = sharded.ShardedTokens(np.split(np.array(store.tokens), [20, 21, 70]))
    parts = dataset.read(range(len(dataset)))
    assert all((parts[name] == whole[name]).all() for name in whole)
    assert audit(dataset).format() == whole_audit

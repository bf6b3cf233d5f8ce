from types import SimpleNamespace

import numpy as np
import pytest
from torch import nn

from adaptive_sampling.windows import ContextCurriculum, WindowConfig, check_positions, max_positions, presets


def test_stages_follow_their_fractions(write_store):
    store = write_store(range(65))
    curriculum = ContextCurriculum(store, WindowConfig(1, tail="cover"), [(0.75, 4, None), (0.25, 16, 8)])
    assert [(stage.begin, stage.end, stage.dataset.seq_len) for stage in curriculum] == [(0, 0.75, 4), (0.75, 1, 16)]
    assert len(curriculum) == 2
    assert [curriculum.at(fraction).number for fraction in (0, 0.7499, 0.75, 1)] == [0, 0, 1, 1]
    assert [stage.max_steps(1000) for stage in curriculum] == [750, 1000]
    assert curriculum.stages[1].dataset.config.stride == 8
    assert curriculum.stages[1].dataset.config.tail == "cover"
    with pytest.raises(ValueError, match=r"`fraction` must be from 0 to 1, got 1\.5"):
        curriculum.at(1.5)
    with pytest.raises(ValueError, match="`fraction` must be from 0 to 1, got 'a'"):
        curriculum.at("a")
    halves = [(np.float32(0.5), 4, None), (np.float64(0.5), 16, None)]
    assert [stage.end for stage in ContextCurriculum(store, WindowConfig(1), halves)] == [0.5, 1]


def test_weights_are_carried_to_the_next_stage(write_store):
    curriculum = ContextCurriculum(write_store(range(65)), WindowConfig(1), [(0.5, 4, None), (0.5, 16, None)])
    first, last = curriculum
    assert curriculum.carry(first, np.arange(16)).tolist() == [1.5, 5.5, 9.5, 13.5]
    with pytest.raises(ValueError, match="got stage 1 of 2"):
        curriculum.carry(last, np.ones(4))


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([], "at least one"),
        (8, "must be .* got 8"),
        ([(1.0, 4)], "must be"),
        ([(0.5, 4, None)], "sum to 1, got 0.5"),
        ([(0.0, 4, None), (1.0, 4, None)], "above 0 and at most 1, got 0.0"),
        ([(True, 4, None)], "got True"),
        ([(1.0, 0, None)], "`seq_len` must be at least 1, got 0"),
        ([(1.0, 4, -1)], "`stride` must be at least 1, got -1"),
    ],
)
def test_bad_stages_are_refused(write_store, stages, message):
    with pytest.raises(ValueError, match=message):
        ContextCurriculum(write_store(range(65)), WindowConfig(1), stages)


class Learned(nn.Module):
    def __init__(self, positions):
        super().__init__()
        self.wte = nn.Embedding(1000, 2)
        self.wpe = nn.Embedding(positions, 2)


@pytest.mark.parametrize(
    "model",
    [
        SimpleNamespace(config=SimpleNamespace(max_position_embeddings=8)),
        SimpleNamespace(model=SimpleNamespace(config={"n_positions": 8})),
        SimpleNamespace(hparams={"block_size": 8}),
        Learned(8),
        nn.ModuleDict({"backbone": Learned(8)}),
    ],
)
def test_windows_beyond_the_models_positions_are_refused(write_store, model):
    assert max_positions(model) == 8
    check_positions(8, model)
    with pytest.raises(ValueError, match=r"`seq_len` must be at most 8, the positions of .*, got 9"):
        check_positions(9, model)
    with pytest.raises(ValueError, match="must be at most 8"):
        ContextCurriculum(write_store(range(65)), WindowConfig(1), [(0.5, 4, None), (0.5, 16, None)], model=model)


def test_a_model_that_is_silent_takes_all(write_store):
    assert max_positions(nn.Linear(2, 2)) is None
    check_positions(10**6, nn.Linear(2, 2))


def test_presets_are_settings_and_held_out_text_is_scored_once(write_store):
    store = write_store(*[range(1, 60)] * 3, append_eos=True)
    from adaptive_sampling.windows import WindowDataset

    for make in (presets.long_documents, presets.question_answer, presets.short_texts):
        dataset = WindowDataset(store, make(16, seed=3))
        assert len(dataset) > 5
        assert dataset.config.seed == 3
    for config in (presets.long_documents(16), presets.short_texts(16)):
        held_out = WindowDataset(store, presets.held_out(config, stride=5))
        streams = 3 if config.pack == "none" else 1
        assert held_out.valid_targets().sum() == store.num_tokens - streams
        assert not held_out.config.changes_by_epoch
        assert WindowDataset(store, presets.held_out(config, offset=7)).starts()[0] == 7
    assert presets.held_out(presets.question_answer(16)).pack == "best_fit"
    with pytest.raises(ValueError, match="`stride` must be None or seq_len 16, got 5"):
        presets.held_out(presets.question_answer(16), stride=5)

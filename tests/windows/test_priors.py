import numpy as np
import pytest

from adaptive_sampling import WeightPolicy
from adaptive_sampling.windows import (
    NumberTokens,
    WindowConfig,
    WindowDataset,
    batch_prior,
    combine_priors,
    digits_prior,
    length_prior,
    number_list_prior,
)
from adaptive_sampling.windows.numbers import has_number_list, number_starts

VOCABULARY = ["<eos>", "the", " 12", "34", ".", "%", " error", " mm", "0", "03", " ", ",", "2024-01-02", "a1", "-", "١"]
NUMBERS = NumberTokens.from_vocabulary(VOCABULARY)


def kinds(*tokens):
    return NUMBERS.kinds[[VOCABULARY.index(token) for token in tokens]][None]


def test_the_vocabulary_is_scanned_for_digits():
    assert NUMBERS.kinds.tolist() == [0, 0, 1, 2, 3, 3, 0, 0, 2, 2, 0, 0, 2, 0, 3, 2]
    assert NUMBERS.digits.nonzero()[0].tolist() == [2, 3, 8, 9, 12, 15]
    by_id = {token: index for index, token in enumerate(VOCABULARY)}
    assert (NumberTokens.from_vocabulary(by_id).kinds == NUMBERS.kinds).all()
    assert NumberTokens.from_vocabulary(["Ġ7", "▁7", b"7", "Ċ"]).kinds.tolist() == [1, 1, 2, 0]
    with pytest.raises(TypeError, match=r"`vocabulary` must be .* got str"):
        NumberTokens.from_vocabulary("abc")
    with pytest.raises(ValueError, match="`kinds` must be integers from 0 to 3"):
        NumberTokens([4])


def test_a_tokenizer_can_be_scanned():
    from tokenizers import Tokenizer, models

    tokenizer = Tokenizer(models.WordLevel({"a": 0, " 5": 1, "6": 2}, unk_token="a"))
    assert NumberTokens.from_vocabulary(tokenizer).kinds.tolist() == [0, 1, 2]


def test_tokens_of_one_number_count_once():
    assert number_starts(kinds("the", " 12", "34", ".", "03", "%", " 12")).sum() == 2
    assert number_starts(kinds("0", ".", "0", "34")).sum() == 1
    assert number_starts(kinds("0", ",", "0")).sum() == 2
    assert number_starts(kinds("0", " ", "0")).sum() == 2


@pytest.mark.parametrize(
    ("tokens", "found"),
    [
        ((" error", " ", "0", ".", "03", " mm"), False),
        (("0", ".", "0", "34", " ", "0", ".", "0", "34", " mm"), False),
        ((" 12", ",", " 12", ",", " 12", ",", " 12"), True),
        ((" 12", "the", "the", " 12", "the", "the", " 12", "the", "the", " 12"), True),
        ((" 12", "the", "the", "the", " 12", "the", " 12", "the", " 12"), False),
        ((" 12", " 12", " 12", "the"), False),
        (("the", " 12", " 12", " 12", " 12"), True),
        ((" 12", "34", "34", "34", "34", "34"), False),
        (("0", ".", "03", ",", " ", "0", ".", "03", ",", " ", "0", ",", " ", "0"), True),
    ],
)
def test_lists_of_numbers(tokens, found):
    assert has_number_list(kinds(*tokens)).tolist() == [found]


def test_lists_of_numbers_end_with_their_window():
    row = kinds("the", "the", " 12", " 12")[0]
    assert has_number_list(np.stack([row, row[::-1], row])).tolist() == [False] * 3
    assert has_number_list(np.concatenate([row, row[::-1]])[None]).tolist() == [True]


def windows(write_store, *documents, seq_len=8, **settings):
    return WindowDataset(
        write_store(*documents, vocab_size=len(VOCABULARY)), WindowConfig(seq_len, tail="pad", **settings)
    )


def test_length_prior_is_the_share_of_targets(write_store):
    dataset = windows(write_store, [1] * 9, [1] * 5, [1] * 2)
    assert length_prior(dataset).factors.tolist() == [1.0, 0.5, 0.125]
    with pytest.warns(UserWarning, match="no target"):
        shared = WindowDataset(write_store([1] * 8, [1]), WindowConfig(8, pack="best_fit"))
    prior = length_prior(shared)
    assert prior.factors.tolist() == [7 / 8, 0.0]
    assert (prior.num_excluded, prior.why(0), prior.why(1)) == (1, [], ["no target"])


def test_digits_prior_halves_many_and_raises_few(write_store):
    dataset = windows(write_store, [3] + [1] * 8, [3, 3] + [1] * 7, [1] * 9, [3, 1, 1])
    assert digits_prior(dataset, NUMBERS).factors.tolist() == [1.0, 0.5, 1.1, 0.5]


def test_padding_is_no_text(write_store):
    store = write_store([1] * 4, eos_id=3, vocab_size=len(VOCABULARY))
    assert digits_prior(WindowDataset(store, WindowConfig(8, tail="pad")), NUMBERS).factors.tolist() == [1.1]


def test_number_lists_are_excluded_with_the_reason_unless_told_otherwise(write_store):
    dataset = windows(write_store, [2] * 4 + [1] * 5, [2, 6, 8, 4, 9, 7, 1, 1, 1])
    prior = number_list_prior(dataset, NUMBERS)
    assert prior.factors.tolist() == [0.0, 1.0]
    assert prior.why(0) == ["list of numbers"]
    assert "1 list of numbers" in str(prior)
    assert number_list_prior(dataset, NUMBERS, lists="keep").factors.tolist() == [1.0, 1.0]
    with pytest.raises(ValueError, match="`lists` must be 'exclude' or 'keep', got 'drop'"):
        number_list_prior(dataset, NUMBERS, lists="drop")


def test_priors_multiply_and_keep_all_reasons(write_store):
    dataset = windows(write_store, [2] * 9, [1] * 9, [1] * 5)

    def dull(batch):
        return np.where(batch["input_ids"][:, 0] == 1, 0, 2)

    combined = combine_priors([length_prior(dataset), number_list_prior(dataset, NUMBERS), batch_prior(dataset, dull)])
    assert combined.factors.tolist() == [0.0, 0.0, 0.0]
    assert [combined.why(k) for k in range(3)] == [["list of numbers"], ["dull"], ["dull"]]
    policy = WeightPolicy(priors=length_prior(dataset).factors, warmup=0, cooldown=0)
    policy.update([0], [1.0])
    assert policy.weights[2] < policy.weights[1]
    with pytest.raises(ValueError, match="got none"):
        combine_priors([])
    with pytest.raises(ValueError, match=r"same windows, got 3 .* and 1 "):
        length_prior(dataset) * length_prior(windows(write_store, [1] * 9))


@pytest.mark.parametrize("value", [float("nan"), -1.0, float("inf")])
def test_a_function_that_gives_no_factor_is_named_with_the_window(write_store, value):
    dataset = windows(write_store, [1] * 9, [1] * 9)

    def odd(batch):
        return np.where(batch["window_id"] == 1, value, 1.0)

    with pytest.raises(ValueError, match=rf"prior 'odd' must be finite and not negative, got {value} for window 1"):
        batch_prior(dataset, odd)
    with pytest.raises(ValueError, match=r"must return shape \(2,\), got \(1,\)"):
        batch_prior(dataset, lambda batch: [1.0])
    with pytest.raises(
        ValueError, match=r"prior 'words' must return one number per window, got list .* windows 0 to 1"
    ):
        batch_prior(dataset, lambda batch: ["a", "b"], name="words")


def test_priors_need_windows_whose_text_stays_and_their_own_vocabulary(write_store):
    store = write_store([1] * 9, [2] * 9, vocab_size=5)
    moving = WindowDataset(store, WindowConfig(4, pack="concat", reshuffle_documents=True))
    with pytest.raises(ValueError, match="`reshuffle_documents` must be False"):
        length_prior(moving)
    with pytest.raises(ValueError, match="vocabulary of 5 ids, got 16"):
        digits_prior(WindowDataset(store, WindowConfig(4)), NUMBERS)
    with pytest.raises(TypeError, match="`dataset` must be a WindowDataset"):
        length_prior([1])

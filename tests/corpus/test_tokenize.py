import sys

import numpy as np
import pytest
import tokenizers

from adaptive_sampling.corpus import byte_tokenizer, load_tokenizer, train_tokenizer
from adaptive_sampling.corpus.tokenize import EOS_TOKEN, encode_batches, eos_id_of, token_bytes, vocab_size_of

TEXTS = ["the cat sat on the mat. " * 20, "naïve 猫\n\tx = 1\r\n"]


def test_train_tokenizer_is_deterministic_and_lossless():
    tokenizer = train_tokenizer(TEXTS, vocab_size=270)
    assert tokenizer.get_vocab_size() == 270
    assert tokenizer.to_str() == train_tokenizer(iter(TEXTS), vocab_size=270).to_str()
    for text in [*TEXTS, " 😀 \x00 unseen", f"a {EOS_TOKEN} b"]:
        ids = tokenizer.encode(text).ids
        assert eos_id_of(tokenizer) not in ids
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("vocab_size", [256, True, 300.0])
def test_train_tokenizer_refuses_too_small_a_vocabulary(vocab_size):
    with pytest.raises(ValueError, match=f"257, got {vocab_size}"):
        train_tokenizer(TEXTS, vocab_size=vocab_size)


@pytest.mark.parametrize("batch_characters", [1, 30, 10**6])
def test_encode_batches_equals_one_by_one(batch_characters):
    tokenizer = train_tokenizer(TEXTS, vocab_size=270)
    texts = [*TEXTS, "", "x"] * 3
    found = list(encode_batches(tokenizer, iter(texts), batch_characters=batch_characters))
    assert [ids.tolist() for ids in found] == [tokenizer.encode(text).ids for text in texts]
    assert found[0].dtype == np.uint32


def test_load_tokenizer_switches_truncation_and_padding_off(tmp_path):
    tokenizer = train_tokenizer(TEXTS, vocab_size=270)
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=50)
    tokenizer.save(str(tmp_path / "t.json"))
    loaded = load_tokenizer(tmp_path / "t.json")
    assert loaded.encode(f"cat{EOS_TOKEN}").ids == train_tokenizer(TEXTS, vocab_size=270).encode(f"cat{EOS_TOKEN}").ids


def test_load_tokenizer_names_what_is_wrong(tmp_path):
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(ValueError, match=r"t\.json"):
        load_tokenizer(tmp_path / "t.json")
    text = train_tokenizer(TEXTS, vocab_size=270).to_str().replace(EOS_TOKEN, "<end>")
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(ValueError, match="endoftext"):
        load_tokenizer(tmp_path / "t.json")
    with pytest.raises(OSError, match=r"none\.json"):
        load_tokenizer(tmp_path / "none.json")


def test_a_missing_package_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"`tokenizers` .*lightning-adaptive-sampling\[corpus\]"):
        train_tokenizer(TEXTS)


def test_byte_tokenizer_has_bytes_as_ids_and_survives_a_file(tmp_path):
    tokenizer = byte_tokenizer()
    text = "é\n\x01 <|endoftext|> 猫"
    assert tokenizer.encode(text).ids == list(text.encode())
    assert tokenizer.decode(tokenizer.encode(text).ids) == text
    tokenizer.save(str(tmp_path / "t.json"))
    (ids,) = encode_batches(load_tokenizer(tmp_path / "t.json"), [text])
    assert ids.tolist() == list(text.encode())
    assert eos_id_of(tokenizer) == 256
    assert vocab_size_of(tokenizer) == 257


@pytest.mark.parametrize(
    "change",
    [
        lambda one: one.add_tokens(["hello"]),
        lambda one: setattr(one, "normalizer", tokenizers.normalizers.Lowercase()),
        lambda one: setattr(one, "pre_tokenizer", tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=True)),
        lambda one: one.enable_truncation(3),
        lambda one: setattr(one, "encode_special_tokens", False),
    ],
)
def test_bytes_are_ids_only_where_nothing_else_is_in_the_tokenizer(change):
    text = f"say hello, A{EOS_TOKEN}"
    tokenizer = byte_tokenizer()
    change(tokenizer)
    (ids,) = encode_batches(tokenizer, [text])
    assert ids.tolist() == tokenizer.encode(text).ids != list(text.encode())


def test_bytes_are_ids_beside_other_special_tokens():
    tokenizer = byte_tokenizer()
    tokenizer.add_special_tokens(["<pad>"])
    text = "a<pad>b"
    (ids,) = encode_batches(tokenizer, [text])
    assert ids.tolist() == tokenizer.encode(text).ids == list(text.encode())


@pytest.mark.parametrize("batch_characters", [1, 10**6])
def test_a_text_that_the_tokenizer_refuses_is_named(batch_characters):
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="<unk>"))
    with pytest.raises(ValueError, match=r"`tokenizer` must encode every text, got '.*' for text 2\."):
        list(encode_batches(tokenizer, ["a", "a", "b", "c"], batch_characters=batch_characters))


def test_split_digits_keeps_each_digit_a_token():
    texts = ["in 2024 and 2024 and 2024, 20242024 times 2024"] * 20
    joined, split = (train_tokenizer(texts, 300, split_digits=digits) for digits in (False, True))
    assert len(split.encode("2024").ids) == 4
    assert len(joined.encode("2024").ids) < 4
    assert split.decode(split.encode(texts[0]).ids) == texts[0]


def test_eos_may_be_another_token(tmp_path):
    tokenizer = train_tokenizer(TEXTS, vocab_size=270)
    content = tokenizer.to_str().replace(EOS_TOKEN, "</s>")
    (tmp_path / "t.json").write_text(content)
    assert eos_id_of(load_tokenizer(tmp_path / "t.json")) == 0
    named = content.replace("</s>", "<mine>")
    (tmp_path / "t.json").write_text(named)
    assert eos_id_of(load_tokenizer(tmp_path / "t.json", eos="<mine>"), "<mine>") == 0
    with pytest.raises(ValueError, match="'<other>'"):
        load_tokenizer(tmp_path / "t.json", eos="<other>")


def test_token_bytes_sum_to_the_text_or_are_none():
    tokenizer = train_tokenizer(TEXTS, vocab_size=270)
    sizes = token_bytes(tokenizer)
    for text in [*TEXTS, " 😀 \x00"]:
        assert sizes[tokenizer.encode(text).ids].sum() == len(text.encode())
    assert sizes[eos_id_of(tokenizer)] == len(EOS_TOKEN)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    assert token_bytes(tokenizer) is None


def test_vocab_size_is_the_largest_id_plus_one_where_ids_have_gaps():
    tokenizer = train_tokenizer(TEXTS, vocab_size=270)
    tokenizer.add_tokens(["<added>"])
    assert vocab_size_of(tokenizer) == tokenizer.get_vocab_size() == 271

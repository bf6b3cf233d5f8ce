import codecs

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_sampling.corpus.decode import decode

FRENCH = "L'été dernier, nous étions allés à la plage où les élèves préféraient déjà jouer, et ça plaisait. "
RUSSIAN = "Все счастливые семьи похожи друг на друга, каждая несчастливая семья несчастлива по-своему. "


@given(st.text(min_size=1).filter(lambda text: text.strip() and "\0" not in text and "\ufeff" not in text))
def test_utf8_comes_back_whole_and_sure(text):
    found = decode(text.encode())
    assert (found.text, found.encoding, found.confidence, found.reason) == (text, "utf-8", 1.0, "")


@pytest.mark.parametrize(
    ("mark", "codec", "name"),
    [
        (codecs.BOM_UTF8, "utf-8", "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16-le", "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16-be", "utf-16"),
        (codecs.BOM_UTF32_LE, "utf-32-le", "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32-be", "utf-32"),
    ],
)
def test_byte_order_marks_decide_and_are_dropped(mark, codec, name):
    found = decode(mark + FRENCH.encode(codec))
    assert (found.text, found.encoding, found.confidence) == (FRENCH, name, 1.0)


def test_a_broken_text_behind_a_mark_is_left_out():
    assert decode(codecs.BOM_UTF16_LE + b"a\0b").reason == "broken utf-16 behind its byte-order mark at offset 4"


@pytest.mark.parametrize("codec", ["cp1251", "koi8-r"])
def test_another_encoding_is_found_and_its_confidence_recorded(codec):
    found = decode((RUSSIAN * 3).encode(codec))
    assert found.text == RUSSIAN * 3
    assert found.encoding.replace("_", "-") == codec
    assert 0.9 <= found.confidence <= 1
    assert decode((RUSSIAN * 3).encode(codec), min_confidence=1.0).confidence == found.confidence


@pytest.mark.parametrize(
    "raw",
    [
        b"\xff",
        b"caf\xe9",
        FRENCH.encode() + b"\xff" + FRENCH.encode(),
        np.random.default_rng(0).integers(0, 256, 500, dtype=np.uint8).tobytes().replace(b"\0", b"\1"),
    ],
)
def test_what_no_decoder_is_sure_of_is_left_out_with_the_reason(raw):
    found = decode(raw)
    assert found.text == ""
    assert "is not UTF-8" in found.reason
    assert "sure, below 0.90" in found.reason or "no other encoding fits" in found.reason


@pytest.mark.parametrize(
    ("raw", "reason"), [(b"", "empty"), (b" \n", "empty"), (b"a\0b\0", "2 NUL characters, the first at 1")]
)
def test_nothing_and_nul_are_reasons(raw, reason):
    assert decode(raw).reason == reason

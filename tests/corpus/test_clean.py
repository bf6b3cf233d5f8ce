import pytest

from adaptive_sampling.corpus import Cleaning
from adaptive_sampling.corpus.clean import is_code

BOOK = (
    "The Project Gutenberg eBook of Nothing\n\nTitle: Nothing\n\n"
    "*** START OF THE PROJECT GUTENBERG EBOOK NOTHING ***\n\nOnce upon a time.\n\n"
    "*** END OF THE PROJECT GUTENBERG EBOOK NOTHING ***\nLicence and more.\n"
)


def test_nothing_is_cleaned_by_default():
    assert not Cleaning()
    assert Cleaning()("a\r\n\n\n\nb").text == "a\r\n\n\n\nb"


@pytest.mark.parametrize(
    ("words", "text", "cleaned", "steps"),
    [
        ("crlf", "a\r\nb\rc\n", "a\nb\nc\n", "crlf"),
        ("nfc", "e\u0301t\u00e9", "\u00e9t\u00e9", "nfc"),
        ("paragraphs", "a\nb\n\nc\n\n\n\nd\n \t\ne", "a\nb\n\nc\n\nd\n\ne", "paragraphs"),
        ("crlf,paragraphs", "a\r\n\r\n\r\nb", "a\n\nb", "crlf,paragraphs"),
        ("crlf,nfc,paragraphs,gutenberg", "plain\n", "plain\n", ""),
        ("gutenberg", BOOK, "Once upon a time.\n", "gutenberg"),
    ],
)
def test_steps_change_what_they_name_and_are_recorded(words, text, cleaned, steps):
    found = Cleaning.parse(words)(text)
    assert (found.text, found.steps, found.reason) == (cleaned, steps, "")


def test_gutenberg_parts_stay_findable():
    found = Cleaning(gutenberg=True)(BOOK)
    (header, before), (footer, behind) = found.removed
    assert (header, footer) == ("header", "footer")
    assert before.endswith("NOTHING ***")
    assert behind.endswith("Licence and more.\n")
    assert before + "\n\n" + found.text + "\n" + behind == BOOK


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_gutenberg_and_paragraphs_see_every_line_end_and_keep_it(end):
    for text in (
        BOOK,
        BOOK.replace("NOTHING ***\n\n", "\nNOTHING ***\n\n", 1),
        BOOK.partition("\n\n*** END")[0] + "\n",
    ):
        wanted = Cleaning(gutenberg=True)(text)
        found = Cleaning(gutenberg=True)(text.replace("\n", end))
        assert found.text == wanted.text.replace("\n", end) == f"Once upon a time.{end}"
        assert found.removed == tuple((name, part.replace("\n", end)) for name, part in wanted.removed)
    text = "a\nb\n\nc\n\n\n\nd\n \t\ne\n\n\n"
    assert Cleaning(paragraphs=True)(text.replace("\n", end)).text == "a\nb\n\nc\n\nd\n\ne\n\n".replace("\n", end)
    assert Cleaning(paragraphs=True)("a\r\n\r\nb\n\r\nc").steps == ""


@pytest.mark.parametrize(
    ("words", "text", "reason"),
    [
        ("min-chars:4", "abc", "3 characters, below 4"),
        ("min-chars:3", "abc", ""),
        ("printable:0.9", "ab\x01\x02", "0.50 of the characters printable, below 0.90"),
        ("printable:0.9", "ab\n\t", ""),
        ("gutenberg", BOOK.replace("Once upon a time.", ""), "empty after cleaning"),
    ],
)
def test_what_is_too_short_or_unprintable_is_left_out(words, text, reason):
    assert Cleaning.parse(words)(text).reason == reason


@pytest.mark.parametrize("words", ["crlf,", "", " nfc , crlf"])
def test_parse_takes_commas_and_spaces(words):
    assert Cleaning.parse(words).nfc == ("nfc" in words)


@pytest.mark.parametrize("words", ["crfl", "min-chars:x", "nfc:1", "printable:2", "min-chars:-1"])
def test_parse_names_what_it_does_not_know(words):
    with pytest.raises(ValueError, match=r"crfl|min-chars:x|nfc:1|got 2\.0|got -1"):
        Cleaning.parse(words)


def test_code_is_known_by_its_suffix():
    assert is_code("a/b.py")
    assert is_code("X.CPP")
    assert not is_code("a.py/readme.txt")
    code = (
        "a.py.gz a.h.zst b.pyx b.pxd b.cxx b.hh b.hxx b.mm b.zsh b.ps1 b.scss b.cmake b.gradle B.JSON.GZ a/Makefile "
        "Dockerfile d/Dockerfile.dev CMakeLists.txt Makefile.in gnumakefile.gz a.mk"
    )
    prose = "a.txt.gz py notes.md makefile.txt Makefile/readme a/my-makefile b.jsonl.gz building"
    assert [path for path in code.split() if not is_code(path)] == []
    assert [path for path in prose.split() if is_code(path)] == []


@pytest.mark.parametrize(
    "settings", [{"min_printable": "x"}, {"min_printable": None}, {"min_characters": 1.5}, {"crlf": "no"}]
)
def test_settings_of_another_kind_are_named(settings):
    with pytest.raises((ValueError, TypeError), match=f"`{next(iter(settings))}` must be "):
        Cleaning(**settings)

import pytest

from adaptive_sampling.errors import StoreError
from adaptive_sampling.windows._watch import StoreWatch


def test_of_many_files_each_has_its_turn(tmp_path):
    for number in range(10):
        (tmp_path / f"tokens-{number}.bin").write_bytes(b"12")
    (tmp_path / "metadata.json").write_text("{}")
    (tmp_path / "note.txt").write_text("not of the store")
    watch = StoreWatch(tmp_path)
    for _ in range(20):
        watch.check()
    (tmp_path / "note.txt").write_text("changed")
    watch.check()
    (tmp_path / "tokens-7.bin").write_bytes(b"123")

    def check_all():
        for _ in range(3):
            watch.check()

    with pytest.raises(StoreError, match=r"tokens-7\.bin' of 3 bytes for 2, changed"):
        check_all()


def test_nothing_to_watch_is_no_error(tmp_path):
    StoreWatch(tmp_path).check()

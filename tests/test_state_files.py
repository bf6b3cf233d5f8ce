import sys

import pytest
import torch

from adaptive_sampling._state_files import files_beside, num_bytes, read_beside, write_beside
from adaptive_sampling.errors import MissingPackageError, StateMismatchError


def make_state():
    shared = torch.arange(5, dtype=torch.float32)
    return {
        "step": 3,
        "name": "a/b",
        "policy": {"score": torch.linspace(0, 1, 7), "bits": torch.tensor([True, False]), "none": None},
        "parts": [{"ids": torch.arange(4)}, {"ids": torch.empty(0, dtype=torch.int64)}, [1, 2.5]],
        "a": {"b": shared, "turned": torch.arange(6).reshape(2, 3).T},
        "a/b": shared,
        "half": torch.tensor(1.5, dtype=torch.bfloat16),
    }


def same(a, b):
    if isinstance(a, torch.Tensor):
        return isinstance(b, torch.Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def holds_no_tensor(state):
    return num_bytes(state) == 0


def saved(tmp_path, owner="Owner"):
    return write_beside(tmp_path / "x.ckpt", owner, make_state())


def the_file(tmp_path):
    (path,) = files_beside(tmp_path / "x.ckpt")
    return path


def test_a_state_comes_back_to_the_bit_and_is_left_as_it_was(tmp_path):
    state = make_state()
    light = write_beside(tmp_path / "new" / "x.ckpt", "Owner", state)
    assert same(state, make_state())
    assert holds_no_tensor(light)
    # What stays in the checkpoint passes torch's strict reader.
    torch.save(light, tmp_path / "new" / "x.ckpt")
    light = torch.load(tmp_path / "new" / "x.ckpt", weights_only=True)
    assert same(read_beside(tmp_path / "new" / "x.ckpt", light), make_state())
    assert [path.name.partition("-")[0] for path in (tmp_path / "new").glob("*.safetensors")] == ["x.ckpt.Owner"]
    assert not list((tmp_path / "new").glob(".*"))


def test_other_tools_read_the_file_by_names(tmp_path):
    from safetensors import safe_open

    saved(tmp_path)
    with safe_open(the_file(tmp_path), "pt") as file:
        assert {"policy/score", "policy/bits", "parts/0/ids", "a/b", "a/b_", "half"} <= set(file.keys())
        assert torch.equal(file.get_tensor("policy/score"), torch.linspace(0, 1, 7))


def test_bytes_are_those_of_all_tensors():
    assert num_bytes(make_state()) == 7 * 4 + 2 + 4 * 8 + 2 * 5 * 4 + 6 * 8 + 2


def test_a_state_without_a_file_is_read_as_it_is(tmp_path):
    assert same(read_beside(tmp_path / "x.ckpt", make_state()), make_state())


def test_both_may_be_moved_renamed_or_linked_to(tmp_path):
    state = saved(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "x.ckpt").touch()
    (elsewhere / "link.ckpt").symlink_to(tmp_path / "x.ckpt")
    assert same(read_beside(elsewhere / "link.ckpt", state), make_state())
    moved = the_file(tmp_path).rename(elsewhere / the_file(tmp_path).name)
    assert same(read_beside(elsewhere / "renamed.ckpt", state), make_state())
    moved.rename(elsewhere / moved.name.replace("x.ckpt", "best.ckpt"))
    assert same(read_beside(elsewhere / "best.ckpt", state), make_state())


def test_a_missing_file_is_named_with_the_cure(tmp_path):
    state, path = saved(tmp_path), the_file(tmp_path)
    path.unlink()
    with pytest.raises(
        StateMismatchError, match=r"(?s)x\.ckpt` needs .*x\.ckpt\.Owner-.*no such file.*Move or copy both"
    ):
        read_beside(tmp_path / "x.ckpt", state)


@pytest.mark.parametrize("kept", [0, 1, 100, -1])
def test_a_truncated_file_is_refused(tmp_path, kept):
    state, path = saved(tmp_path), the_file(tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:kept])
    with pytest.raises(
        StateMismatchError, match=rf"x\.ckpt\.Owner-.*must have {len(content)} bytes.*got {len(content[:kept])}"
    ):
        read_beside(tmp_path / "x.ckpt", state)


@pytest.mark.parametrize("place", [0, 9, -1])
def test_a_flipped_bit_is_refused(tmp_path, place):
    state, path = saved(tmp_path), the_file(tmp_path)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(StateMismatchError, match=r"must have the checksum .* its content has changed.*Put it back"):
        read_beside(tmp_path / "x.ckpt", state)


def test_a_foreign_file_of_the_same_size_is_refused(tmp_path):
    state, path = saved(tmp_path), the_file(tmp_path)
    other = make_state()
    other["policy"]["score"] += 1
    path.write_bytes((tmp_path / write_beside(tmp_path / "y.ckpt", "Owner", other)["beside"]["file"]).read_bytes())
    with pytest.raises(StateMismatchError, match="must have the checksum"):
        read_beside(tmp_path / "x.ckpt", state)


def test_files_of_other_checkpoints_and_of_users_are_not_ours(tmp_path):
    state = saved(tmp_path)
    write_beside(tmp_path / "x.ckpt.ckpt", "Owner", make_state())
    for name in ("x.ckpt.mine.safetensors", "x.ckpt.safetensors", "x.ckpt"):
        (tmp_path / name).touch()
    assert [path.name for path in files_beside(tmp_path / "x.ckpt")] == [state["beside"]["file"]]
    assert list(files_beside(tmp_path / "nowhere" / "x.ckpt")) == []


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    import os

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        saved(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_began_is_removed_when_the_same_is_written_again(tmp_path):
    (tmp_path / ".x.ckpt.Owner.4194305.tmp").write_bytes(b"half")
    (tmp_path / ".x.ckpt.Other.4194305.tmp").write_bytes(b"another owner's")
    (tmp_path / ".y.ckpt.Owner.4194305.tmp").write_bytes(b"another checkpoint's")
    saved(tmp_path)
    left = {path.name for path in tmp_path.iterdir() if path.name.startswith(".")}
    assert left == {".x.ckpt.Other.4194305.tmp", ".y.ckpt.Owner.4194305.tmp"}


def test_without_safetensors_the_error_says_what_to_install(tmp_path, monkeypatch):
    state = saved(tmp_path)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    for call in (lambda: saved(tmp_path), lambda: read_beside(tmp_path / "x.ckpt", state)):
        with pytest.raises(MissingPackageError, match="pip install safetensors"):
            call()

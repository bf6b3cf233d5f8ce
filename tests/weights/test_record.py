import pytest
import torch

from adaptive_sampling.weights import record, recording


def test_record_outside_of_a_recording_does_nothing():
    record(torch.ones(2))
    with recording() as box:
        pass
    assert box == []


def test_record_hands_over_the_same_memory_without_gradient():
    losses = torch.ones(3, requires_grad=True) * 2
    with recording() as box:
        record(losses)
    assert len(box) == 1
    assert not box[0].requires_grad
    assert box[0].data_ptr() == losses.data_ptr()
    losses.sum().backward()


def test_the_innermost_recording_receives():
    with recording() as outer:
        with recording() as inner:
            record(torch.tensor([1.0]))
        record(torch.tensor([2.0]))
    assert [x.item() for x in inner] == [1]
    assert [x.item() for x in outer] == [2]


def test_a_recording_ends_with_an_exception():
    with pytest.raises(KeyError), recording() as box:
        raise KeyError
    record(torch.ones(1))
    assert box == []


@pytest.mark.parametrize("bad", [1.5, [1.0], None])
def test_record_refuses_what_is_no_tensor(bad):
    with pytest.raises(TypeError, match="`losses` must be a tensor"):
        record(bad)

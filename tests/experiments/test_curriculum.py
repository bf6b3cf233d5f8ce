import pytest

from experiments import curriculum


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_second_stage_begins_with_what_the_first_learned(tmp_path, monkeypatch):
    for name, value in {"DOCUMENTS": 8, "STEPS": 60, "BATCH_SIZE": 8, "LONG": 64}.items():
        monkeypatch.setattr(curriculum, name, value)
    found = curriculum.run(tmp_path)
    assert found["learned in stage 1"] != pytest.approx(1.0, abs=0.005)
    # Documents hold whole windows of both lengths, so that what is carried is the mean exactly, in float32.
    assert found["carried to stage 2"] == pytest.approx(found["learned in stage 1"], rel=1e-6)
    assert found["correlation over documents"] > 0.999
    # 4 passes of systematic draws: within 1.5 of 64 expected per document of 16 windows.
    assert found["draws of stage 2"] == pytest.approx(found["carried to stage 2"], rel=0.05)

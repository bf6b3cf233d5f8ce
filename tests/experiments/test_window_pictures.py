import re

from experiments import window_pictures


def test_pictures_in_the_docs_are_those_that_the_code_draws(tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["window_pictures", "--out", str(tmp_path)])
    window_pictures.main()
    for name in ("windows.svg", "shared_windows.svg"):
        drawn = (tmp_path / name).read_text()
        assert drawn == (window_pictures.Path("docs/pictures") / name).read_text()
        assert len(re.findall("<rect", drawn)) > 40

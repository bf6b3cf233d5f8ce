from xml.etree import ElementTree

import numpy as np

from experiments import ticket_picture


def test_picture_is_xml_and_shows_tickets_within_one_of_expectation(monkeypatch):
    monkeypatch.setattr(ticket_picture, "NUM_WINDOWS", 300)
    root = ElementTree.fromstring(ticket_picture.picture())
    assert len(root.findall(".//{*}circle")) == 600
    assert np.abs(ticket_picture.deviations("systematic")[1]).max() < 1.1
    assert np.abs(ticket_picture.deviations("multinomial")[1]).max() > 4

"""The paper's numbers, against the averages that it prints."""

from dubium.reproduce.paper import average_gaps, paper_value, read_paper


def test_all_printed_averages_follow_but_the_four_that_are_listed():
    found = [(gap.table, gap.average, gap.row, gap.printed, gap.follows) for gap in average_gaps()]
    listed = [tuple(each.values()) for each in read_paper()["misprints"]]
    assert sorted(found) == sorted(listed)
    assert sorted(listed) == [
        ("anomaly", "ada", "CLUE", 0.114, 0.144),
        ("vary-alpha", "nll", "1.0", 1.068, 1.039),
        ("vary-n-mnist", "accuracy", "Non-attention", 92.55, 92.532),
        ("vary-n-mnist", "nll", "Blur IG", 0.252, 0.2514),
    ]


def test_every_row_has_a_number_in_every_column():
    for name, table in read_paper()["tables"].items():
        for row, values in table["rows"].items():
            assert len(values) == len(table["columns"]), (name, row)
            assert all(isinstance(value, str if name == "properties" else float) for value in values), (name, row)


def test_size_of_the_paper():
    sizes = {name: (len(t["rows"]), len(t["columns"])) for name, t in read_paper()["tables"].items()}
    assert sizes == {
        "blurring": (8, 16),
        "mitigation": (9, 8),
        "properties": (4, 7),
        "anomaly": (8, 6),
        "vary-n-mnist": (7, 10),
        "vary-n-cifar-10": (7, 10),
        "runtime": (4, 2),
        "vary-alpha": (11, 4),
        "kinds": (3, 4),
        "space": (2, 4),
        "temperatures": (7, 12),
        "paths": (4, 8),
        "single": (3, 4),
        "random": (2, 4),
        "no-normalisation": (2, 4),
    }
    assert len(read_paper()["figures"]) == 8


def test_tables_agree_where_they_repeat_a_number():
    """The paper's own method is in many tables; each was transcribed by itself."""
    for table, row in (("random", "Ours"), ("paths", "UA-Backprop + FullGrad"), ("single", "Ours-Ensemble-5")):
        for column in read_paper()["tables"][table]["columns"]:
            assert paper_value(table, row, column) == paper_value("blurring", "Ours", column), (table, column)
    for column in read_paper()["tables"]["temperatures"]["columns"]:
        assert paper_value("temperatures", "tau1=0.55, tau2=0.02", column) == paper_value("blurring", "Ours", column)
    for column in read_paper()["tables"]["kinds"]["columns"]:
        assert paper_value("kinds", "Epistemic", column) == paper_value("mitigation", "Ours", column)
        assert paper_value("vary-alpha", "0.2", column) == paper_value("mitigation", "Ours", column)
    assert paper_value("vary-n-mnist", "Blur IG", "mnist-500/nll") == paper_value("mitigation", "Blur IG", "mnist/nll")


def test_a_row_that_the_paper_does_not_have_has_no_value():
    assert paper_value("random", "blur-path", "mnist/murr@2%") is None

import sys

import pytest
import torch

import dubium
from dubium.errors import MissingExtraError, UnknownNameError
from dubium.training import doubt_callback, log_explanation
from dubium.training.doubtful import DoubtfulImages
from tests.networks import ensemble, images, small_cnn
from tests.posteriors import third_party


class Board:
    """What a SummaryWriter would have written."""

    def __init__(self):
        self.figures, self.scalars = {}, {}

    def add_figure(self, tag, figure, step, close=True):
        assert not close
        self.figures[tag, step] = figure

    def add_scalar(self, tag, value, step):
        self.scalars[tag, step] = value


def test_the_most_doubtful_images_of_all_batches_are_kept():
    x, scores = images(20), torch.rand(20, generator=torch.Generator().manual_seed(0))
    doubtful = DoubtfulImages(most=5)
    for start in range(0, 20, 6):
        doubtful.add(x[start : start + 6], scores[start : start + 6])
    best = scores.argsort(descending=True)[:5]
    assert torch.equal(doubtful.images, x[best])
    assert torch.equal(doubtful.scores, scores[best])


@pytest.mark.parametrize("kinds", ["epistemic", ("total", "aleatoric", "epistemic")])
def test_an_explanation_becomes_a_figure_and_its_mean_scores(kinds):
    networks, x = ensemble(small_cnn), images(3)
    board, result = Board(), dubium.explain(networks, x, method="grad", kinds=kinds, keep_images=True)
    log_explanation(board, result, 7, tag="doubt", most=2)
    assert board.figures["doubt", 7].get_suptitle() == "The first 2 of 3 images; most=3 draws all."
    assert {name: value for (name, _), value in board.scalars.items()} == {
        f"doubt/{kind}": pytest.approx(float(scores.mean()))
        for kind, scores in dubium.uncertainty(networks, x).scores.items()
    }


def test_without_lightning_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    with pytest.raises(MissingExtraError, match=r"dubium\[lightning\]"):
        doubt_callback()


def test_a_kind_that_is_none_is_refused_at_once(unchecked):
    with pytest.raises(UnknownNameError, match="'epi'"):
        doubt_callback(kind="epi")


@pytest.mark.libraries
@pytest.mark.filterwarnings("ignore")
def test_a_lightning_run_logs_its_most_doubtful_validation_images(tmp_path):
    lightning = third_party.imported("lightning.pytorch")
    board = Board()

    class BoardLogger(lightning.loggers.logger.Logger):
        name, version, experiment = "board", 0, board

        def log_metrics(self, metrics, step=None): ...
        def log_hyperparams(self, params, *args, **kwargs): ...

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = small_cnn()

        def forward(self, x):
            return self.network(x)

        def training_step(self, batch, _):
            return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

        def validation_step(self, batch, _):
            return torch.nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.01)

    x, labels = images(12), torch.arange(12) % 4
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, labels), batch_size=5)
    module, callback = Module(), doubt_callback(most=3, method="grad")
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", callbacks=[callback], logger=BoardLogger(), default_root_dir=tmp_path,
        enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(module, loader, loader)
    assert set(board.figures) == {("doubt", 0), ("doubt", 1)}
    scores = dubium.uncertainty([module.network.eval()], x, kinds="total").scores["total"]
    assert board.scalars["doubt/total", 1] == pytest.approx(float(scores.sort(descending=True).values[:3].mean()))
    plain = lightning.Trainer(
        max_epochs=1, accelerator="cpu", callbacks=[doubt_callback(most=3, method="grad")], logger=False,
        default_root_dir=tmp_path, enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    with pytest.warns(UserWarning, match="no logger that takes figures"):
        plain.fit(module, loader, loader)

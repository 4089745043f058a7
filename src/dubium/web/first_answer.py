"""The answer about the first image, computed while the page is built: importing Gradio takes longer."""

from pathlib import Path
from threading import Lock, Thread

from dubium.figures import OPACITY
from dubium.ua_backprop import PAPER_TAUS
from dubium.web.answer import Answer, Controls, answer_controls
from dubium.web.session import Session, runnable_methods

PATIENCE = 5  # seconds that a page which is ready otherwise waits


def first_controls(session: Session) -> Controls:
    """What the controls say when the page is opened; the first image, if there is one."""
    channels = session.preprocessing.shape[0] or (len(session.pictures[0].image) if session.pictures else 3)
    tau1, tau2 = PAPER_TAUS[channels == 1]
    return Controls(
        item=session.pictures[0] if session.pictures else None, last=None, kind="epistemic",
        method=runnable_methods(session)[0], relevance="fullgrad", tau1=tau1, tau2=tau2, opacity=OPACITY, smooth=0,
        share=0.05, sigma=4,
    )  # fmt: skip


class FirstAnswer:
    """What the page shows first; a thread begins to compute it at once, if there is an image.

    Args:
        session: networks and images.
        folder: for files to download.
        turn: held meanwhile, as for every other answer.
    """

    def __init__(self, session: Session, folder: Path, turn: Lock) -> None:
        self.controls = first_controls(session)
        self._session, self._folder, self._turn = session, folder, turn
        self._answer = Answer()
        self._thread = Thread(target=self._compute, daemon=True)
        if self.controls.item is not None:
            self._thread.start()

    def _compute(self) -> None:
        with self._turn:
            self._answer = answer_controls(self._session, self._folder, self.controls)

    def wait(self, seconds: float | None = None) -> Answer:
        """The answer; an empty one where there is no image, or it is not there after so many seconds."""
        if self.controls.item is not None:
            self._thread.join(seconds)
        return self._answer

"""What the page of an evaluation says: the question of each protocol, what each metric means, titles of figures."""

QUESTIONS = {
    "blurring": "Does the doubt go when the pixels that a method blames for it are blurred?",
    "removal": "What becomes of doubt and prediction when the blamed pixels are taken away?",
    "anomaly": "Is a patch found that was pasted into the image?",
    "masks": "Do the maps agree with the masks that were given?",
    "sanity": "Do the maps depend on the networks at all, and are they the same when made again?",
    "causes": "Does each kind's map point at its own cause, at a known place? The networks are trained for this.",
    "mitigation": "Does training with the maps make better networks?",
}
TITLES = {"mitigation": "does training with maps help?"}
"""Of protocols that do not ask which method finds the doubt."""

COMPARE = {"mitigation": "Compare with training without maps (none) and with maps that know nothing, all in grey."}
"""What to compare with, where that is not the controls alone."""

LOST = "when layers lose their weights, the last ones first"
LOST_FIRST = "when layers lose their weights, the first ones first"
MEANINGS = {
    "murr": "Doubt that is gone at the best blur, median over images.",
    "auc-urr": "Doubt that is left while the blur grows, mean of the median curve.",
    "accuracy": "Share of right predictions when the blamed pixels are gone.",
    "true-probability": "Probability of the right class when the blamed pixels are gone.",
    "srg": "Doubt left without the least relevant pixels minus doubt left without the most relevant ones.",
    "iou": "Overlap of the guess and the place, over their union.",
    "ada": "How often the overlap is above one half.",
    "recovery": "How often the old prediction returns when the guess is removed.",
    "mask-iou": "Overlap of the mask and as many of the map's highest pixels, over their union.",
    "pointing": "How often the map's highest pixel lies in the mask.",
    "mass": "Part of the map that lies in the mask.",
    "nll": "Negative log likelihood of test images.",
    "ece": "Calibration error of test images.",
    "cascade": f"Rank correlation of a map with itself {LOST}.",
    "top5": f"Part of the top 5 % of pixels that stays {LOST}; by chance 0.05.",
    "bottom-cascade": f"Rank correlation of a map with itself {LOST_FIRST}.",
    "bottom-top5": f"Part of the top 5 % of pixels that stays {LOST_FIRST}; by chance 0.05.",
    "emprt": "How much more even the map's values become when all weights are random, as a part of what they were.",
    "kinds": "Rank correlation of the aleatoric and the epistemic map. Low is not good by itself: random maps differ.",
    "kinds-top5": "Part of the top 5 % of pixels that both kinds share. Low is not good by itself.",
    "halves": "Rank correlation of the maps of two halves of the networks.",
    "repeatability": "Rank correlation of the maps of networks drawn anew.",
    "effective-pixels": "How many pixels the map speaks of. Neither few nor many is better.",
    "deletion": "Doubt that is left while the highest pixels are blurred, on average.",
    "insertion": "Doubt that is there while the highest pixels are put into the blurred image, on average.",
    "mark": "How often the map points at the mark, the cause of aleatoric doubt.",
    "patch": "How often the map points at the patch, the cause of epistemic doubt.",
    "own-other": "How much more often the map points at its own cause than at the other.",
}
"""Of every metric, by the name's first part."""

OF_PROTOCOL = {("mitigation", "accuracy"): "Share of test images that the trained networks get right."}
"""Of metrics that mean something else in one protocol."""

AT = {
    "none": "On no image do the scores react to the causes, so all were taken: this says nothing.",
    "loose": "Of images where each cause raises its own kind.",
    "strict": "Of images where each cause raises its own kind alone.",
}
"""What follows a metric's @, in words."""

FIGURES = {
    "urr": "Doubt that is left while the blamed pixels are blurred",
    "boxes": "Where the patch was pasted, and where each method guesses it",
    "removal": "Doubt that is left while pixels are taken away",
    "cascade": "How like itself a map is when layers are randomised",
    "causes": "Two causes in one image: a mark that is ambiguous (blue) and a patch that is unknown (orange)",
    "two-by-two": "How often each kind's map points at each cause",
    "attention": "What networks are trained to look at, over the images",
    "arms": "Test images with and without maps in training",
}
"""Titles of figures about all methods."""


def metric_sentence(protocol: str, metric: str) -> str:
    """What a metric means, and on which images.

    >>> metric_sentence("causes", "mark@strict/total").partition(". ")[2]
    'Of images where each cause raises its own kind alone.'
    """
    name, _, at = metric.partition("/")[0].partition("@")
    words = OF_PROTOCOL.get((protocol, name)) or MEANINGS.get(name, "")
    return f"{words} {AT.get(at, '')}".strip()

"""Training: one loop, recipes as data, and runs that continue after an interruption."""

from dubium.training.doubtful import log_explanation
from dubium.training.lightning import doubt_callback
from dubium.training.loop import dataset_logits as predict
from dubium.training.loop import fit, network_for
from dubium.training.recipe import Recipe
from dubium.training.recipes import RECIPES, SCALES, VAE_RECIPES, recipe_for
from dubium.training.train import train
from dubium.training.vae import train_vae

__all__ = [
    "RECIPES",
    "SCALES",
    "VAE_RECIPES",
    "Recipe",
    "doubt_callback",
    "fit",
    "log_explanation",
    "network_for",
    "predict",
    "recipe_for",
    "train",
    "train_vae",
]

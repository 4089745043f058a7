"""Images: find, download, verify and read them."""

from dubium.data.catalog import SOURCES
from dubium.data.dataset import Dataset, as_float
from dubium.data.find import cache_folder, data_folders
from dubium.data.load import load

__all__ = ["SOURCES", "Dataset", "as_float", "cache_folder", "data_folders", "load"]

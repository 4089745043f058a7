"""Public ensembles that `DUBIUM_MODELS` may hold under these names, as plain weight files without `posterior.json`."""

from typing import Any

from dubium.posteriors.record import Record

CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def _members(stem: str, numbers: tuple[int, ...]) -> list[str]:
    return [f"{stem}{number}.safetensors" for number in numbers]


def _cifar_resnet(depth: int, classes: int, shortcut: str) -> dict[str, Any]:
    return {"name": "cifar-resnet", "options": {"depth": depth, "classes": classes, "shortcut": shortcut}}


KNOWN: dict[str, Record] = {
    "cifar10-resnet20": Record(
        kind="ensemble",
        architecture=_cifar_resnet(20, 10, "pad"),
        classes=CIFAR10,
        input_shape=(3, 32, 32),
        normalisation={"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
        members=_members("member", (1, 2, 3, 4, 5)),
    ),
    "cifar100-resnets": Record(
        kind="hyper-ensemble",
        architecture=[_cifar_resnet(depth, 100, "conv") for depth in (20, 32, 44, 56)],
        input_shape=(3, 32, 32),
        normalisation={"mean": (0.5071, 0.4865, 0.4409), "std": (0.2673, 0.2564, 0.2762)},
        members=_members("resnet", (20, 32, 44, 56)),
    ),
    "svhn-cnn": Record(
        kind="ensemble",
        architecture={"name": "svhn-cnn", "options": {}},
        classes=tuple("0123456789"),
        input_shape=(3, 32, 32),
        normalisation={"mean": (0.5,), "std": (0.5,)},
        members=_members("member", (1, 2, 3, 4, 5)),
    ),
}

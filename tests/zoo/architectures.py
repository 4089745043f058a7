"""The architectures of the zoo, by name: how each is built, and the size of its images."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from tests.zoo.odd_networks import CLASSES, ODD, ODD_WITH_ATTENTION


@dataclass(frozen=True)
class Architecture:
    """A network that people use, with K = 10 classes and random weights."""

    library: str
    name: str
    build: Callable[[], nn.Module]
    size: int
    attention: bool

    @property
    def key(self) -> str:
        return f"{self.library}/{self.name}"


def timm_network(name: str, **options: Any) -> nn.Module:
    import timm

    return timm.create_model(name, pretrained=False, num_classes=CLASSES, **options)


TIMM_CNNS: dict[str, int] = {
    "densenet121": 64,
    "dla34": 64,
    "eca_nfnet_l0": 64,
    "efficientnet_b0": 64,
    "efficientnet_b0_gn": 64,
    "ese_vovnet19b_slim": 64,
    "fbnetc_100": 64,
    "gernet_s": 64,
    "ghostnet_050": 64,
    "hardcorenas_a": 64,
    "hgnetv2_b0": 64,
    "hrnet_w18_small": 64,
    "inception_next_atto": 64,
    "inception_v3": 96,
    "convnext_atto": 64,
    "convnextv2_atto": 64,
    "lcnet_050": 64,
    "legacy_seresnet18": 64,
    "legacy_xception": 96,
    "mambaout_femto": 64,
    "mnasnet_small": 64,
    "mobilenetv1_100": 64,
    "mobilenetv2_035": 64,
    "mobilenetv3_small_050": 64,
    "mobilenetv4_conv_small_035": 64,
    "mobileone_s0": 64,
    "nf_regnet_b0": 64,
    "poolformer_s12": 64,
    "regnetx_002": 64,
    "regnety_002": 64,
    "repghostnet_050": 64,
    "repvgg_a0": 64,
    "res2net50_26w_4s": 64,
    "resnest14d": 64,
    "resnet18": 64,
    "resnet26t": 64,
    "resnetv2_18": 64,
    "resnetv2_50x1_bit": 64,
    "resnext50_32x4d": 64,
    "rexnet_100": 64,
    "selecsls42": 64,
    "semnasnet_050": 64,
    "skresnet18": 64,
    "starnet_s050": 64,
    "tinynet_e": 64,
    "vgg11": 64,
    "vgg11_bn": 64,
}
"""Size of the images by name; those networks take any size."""

TIMM_ATTENTION: dict[str, tuple[int, dict[str, Any]]] = {
    "beit_base_patch16_224": (112, {"img_size": 112, "depth": 4, "embed_dim": 192, "num_heads": 3}),
    "botnet26t_256": (128, {"img_size": 128}),
    "caformer_s18": (64, {}),
    "cait_xxs24_224": (112, {"img_size": 112, "depth": 8}),
    "coat_lite_tiny": (64, {"img_size": 64}),
    "coatnet_pico_rw_224": (128, {"img_size": 128}),
    "convit_tiny": (112, {"img_size": 112}),
    "crossvit_tiny_240": (240, {}),
    "davit_tiny": (64, {}),
    "deit_tiny_distilled_patch16_224": (112, {"img_size": 112}),
    "edgenext_xx_small": (64, {}),
    "efficientformer_l1": (224, {}),
    "efficientformerv2_s0": (224, {}),
    "efficientvit_b0": (64, {}),
    "efficientvit_m0": (224, {}),
    "eva02_tiny_patch14_224": (112, {"img_size": 112}),
    "fastvit_t8": (64, {}),
    "focalnet_tiny_srf": (64, {}),
    "gcvit_xxtiny": (224, {}),
    "gmixer_12_224": (112, {"img_size": 112}),
    "gmlp_ti16_224": (112, {"img_size": 112}),
    "hiera_tiny_224": (224, {}),
    "lambda_resnet26t": (64, {}),
    "levit_128s": (224, {}),
    "maxvit_rmlp_pico_rw_256": (128, {"img_size": 128}),
    "mixer_s32_224": (224, {}),
    "mobilenetv4_hybrid_medium": (64, {}),
    "mobilevit_xxs": (64, {}),
    "mobilevitv2_050": (64, {}),
    "nest_tiny": (224, {}),
    "pit_ti_224": (224, {}),
    "pvt_v2_b0": (64, {}),
    "repvit_m0_9": (64, {}),
    "resmlp_12_224": (112, {"img_size": 112}),
    "sequencer2d_s": (64, {"img_size": 64}),
    "swin_tiny_patch4_window7_224": (112, {"img_size": 112, "embed_dim": 48}),
    "swinv2_cr_tiny_224": (224, {"embed_dim": 48}),
    "swinv2_tiny_window8_256": (128, {"img_size": 128, "embed_dim": 48}),
    "tiny_vit_5m_224": (224, {}),
    "tnt_s_patch16_224": (112, {"img_size": 112}),
    "twins_svt_small": (64, {"img_size": 64}),
    "visformer_tiny": (112, {"img_size": 112}),
    "vit_tiny_patch16_224": (112, {"img_size": 112}),
    "vit_base_patch16_siglip_224": (112, {"img_size": 112, "depth": 4, "embed_dim": 192, "num_heads": 3}),
    "vit_small_patch14_reg4_dinov2": (112, {"img_size": 112, "depth": 4, "embed_dim": 192, "num_heads": 3}),
    "xcit_nano_12_p16_224": (112, {"img_size": 112}),
}
"""Size of the images and options by name. Where a network has no small variant, it is made shallow and narrow."""

TORCHVISION: dict[str, tuple[int, bool]] = {
    "alexnet": (64, False),
    "convnext_tiny": (64, False),
    "densenet121": (64, False),
    "efficientnet_b0": (64, False),
    "googlenet": (64, False),
    "inception_v3": (96, False),
    "mnasnet0_5": (64, False),
    "mobilenet_v2": (64, False),
    "mobilenet_v3_small": (64, False),
    "regnet_y_400mf": (64, False),
    "resnet18": (64, False),
    "shufflenet_v2_x0_5": (64, False),
    "squeezenet1_1": (64, False),
    "vgg11": (64, False),
    "maxvit_t": (224, True),
    "swin_t": (64, True),
    "swin_v2_t": (64, True),
    "vit_b_16": (64, True),
}
"""Size of the images, and whether there is attention."""


def torchvision_network(name: str, size: int) -> nn.Module:
    from torchvision import models

    options: dict[str, Any] = {}
    if name in ("googlenet", "inception_v3"):
        options = {"aux_logits": False, "init_weights": False}
    if name == "vit_b_16":
        options = {"image_size": size}
    return models.get_model(name, weights=None, num_classes=CLASSES, **options)


TINY: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 4,
}
STAGES: dict[str, Any] = {"image_size": 64, "depths": [1, 1, 1, 1], "num_heads": [1, 2, 2, 4]}

TRANSFORMERS: dict[str, tuple[int, bool, dict[str, Any]]] = {
    "BeitForImageClassification": (32, True, TINY),
    "BitForImageClassification": (
        64,
        False,
        {"hidden_sizes": [32, 32, 64, 64], "depths": [1, 1, 1, 1], "num_groups": 8, "embedding_size": 32},
    ),
    "ConvNextForImageClassification": (64, False, {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}),
    "ConvNextV2ForImageClassification": (64, False, {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}),
    "CvtForImageClassification": (
        64,
        True,
        {"embed_dim": [16, 32, 48], "depth": [1, 2, 3], "num_heads": [1, 2, 3], "cls_token": [False, False, True]},
    ),
    "Data2VecVisionForImageClassification": (32, True, TINY),
    "DeiTForImageClassification": (32, True, TINY),
    "DeiTForImageClassificationWithTeacher": (32, True, TINY),
    "Dinov2ForImageClassification": (32, True, TINY),
    "Dinov2WithRegistersForImageClassification": (32, True, TINY),
    "EfficientNetForImageClassification": (64, False, {"image_size": 64, "width_coefficient": 0.5, "hidden_dim": 640}),
    "FocalNetForImageClassification": (
        64,
        True,
        {"image_size": 64, "embed_dim": 16, "depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 48, 64]},
    ),
    "HieraForImageClassification": (224, True, {"embed_dim": 24, "depths": [1, 1, 2, 1]}),
    "IJepaForImageClassification": (32, True, TINY),
    "LevitForImageClassification": (
        64,
        True,
        {"image_size": 64, "hidden_sizes": [16, 32, 48], "depths": [1, 1, 1], "num_attention_heads": [2, 2, 2]},
    ),
    "MobileNetV1ForImageClassification": (64, False, {"depth_multiplier": 0.25}),
    "MobileNetV2ForImageClassification": (64, False, {"depth_multiplier": 0.35}),
    "MobileViTForImageClassification": (
        64,
        True,
        {"image_size": 64, "hidden_sizes": [16, 24, 32], "neck_hidden_sizes": [8, 8, 16, 16, 24, 32, 64]},
    ),
    "MobileViTV2ForImageClassification": (64, True, {"image_size": 64, "width_multiplier": 0.25}),
    "PoolFormerForImageClassification": (64, False, {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1]}),
    "PvtForImageClassification": (
        64,
        True,
        {"image_size": 64, "depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 40, 64]},
    ),
    "PvtV2ForImageClassification": (
        64,
        True,
        {
            "image_size": 64,
            "depths": [1, 1, 1, 1],
            "hidden_sizes": [8, 16, 32, 32],
            "num_attention_heads": [1, 2, 2, 4],
        },
    ),
    "RegNetForImageClassification": (64, False, {"hidden_sizes": [16, 24, 32, 48], "depths": [1, 1, 2, 1]}),
    "ResNetForImageClassification": (64, False, {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 1, 1]}),
    "SegformerForImageClassification": (64, True, {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 40, 64]}),
    "SiglipForImageClassification": (32, True, {"vision_config": TINY}),
    "CLIPForImageClassification": (32, True, {"vision_config": TINY}),
    "SwiftFormerForImageClassification": (64, True, {"image_size": 64}),
    "Swinv2ForImageClassification": (64, True, {**STAGES, "embed_dim": 16, "window_size": 4}),
    "SwinForImageClassification": (
        64,
        True,
        {"image_size": 64, "embed_dim": 16, "depths": [2, 2], "num_heads": [1, 2], "window_size": 4},
    ),
    "ViTForImageClassification": (32, True, TINY),
    "ViTMSNForImageClassification": (32, True, TINY),
}
"""Size of the images, whether there is attention, and the configuration, by name of the class."""


def transformers_network(name: str, settings: dict[str, Any]) -> nn.Module:
    import transformers

    kind = getattr(transformers, name)
    return kind(kind.config_class(num_labels=CLASSES, **settings))


def zoo() -> dict[str, Architecture]:
    """All architectures, by key."""
    entries = [
        *(Architecture("by hand", name, build, 16, False) for name, build in ODD.items()),
        *(Architecture("by hand", name, build, 16, True) for name, build in ODD_WITH_ATTENTION.items()),
        *(Architecture("timm", name, partial(timm_network, name), size, False) for name, size in TIMM_CNNS.items()),
        *(
            Architecture("timm", name, partial(timm_network, name, **options), size, True)
            for name, (size, options) in TIMM_ATTENTION.items()
        ),
        *(
            Architecture("torchvision", name, partial(torchvision_network, name, size), size, attention)
            for name, (size, attention) in TORCHVISION.items()
        ),
        *(
            Architecture("transformers", name, partial(transformers_network, name, settings), size, attention)
            for name, (size, attention, settings) in TRANSFORMERS.items()
        ),
    ]
    return {entry.key: entry for entry in entries}

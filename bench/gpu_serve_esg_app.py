"""ESG's four applications as one to serve: pictures in, through the networks of ``gpu_networks.py``, pictures out.

Each task decodes its pictures on CPUs, runs a network of random weights, and encodes what comes out, as the services of
``gpu_functions.py`` do. HEADWAY_SMALL=1 makes networks and pictures small, to try it without a GPU.
"""

from itertools import repeat

import gpu_functions as services
import gpu_networks as networks
import numpy as np
import torch

import headway as hw

CPUS, MOST = 2, 4


def model(name, build, small):
    """Return a model by its name."""
    given = small if services.SMALL else {}

    def made():
        torch.manual_seed(0)
        return build(**given).eval()

    with torch.device("meta"):
        sketch = build(**given)
    tensors = [*sketch.parameters(), *sketch.buffers()]
    return hw.model(name=name, memory=sum(each.nbytes for each in tensors), files=[])(made)


def task(name, of, picture, side, answer, *, centred=True):
    """Return a task with one network; ``side``: height and width that it takes, ``picture``'s where that is None."""
    width, height = picture if side is None else (side[1], side[0])
    mean, deviation = (services.MEAN, services.DEVIATION) if centred else ((0.0,) * 3, (1.0,) * 3)

    @torch.inference_mode()
    def run(network, files):
        device = next(network.parameters()).device
        pixels = list(services.threads(CPUS).map(services.decoded, files, repeat((width, height))))
        pictures = torch.from_numpy(np.stack(pixels)).to(device).permute(0, 3, 1, 2).float()
        centre, spread = (torch.tensor(each, device=device).mul(255).view(1, 3, 1, 1) for each in (mean, deviation))
        outputs = network(pictures.sub_(centre).div_(spread)).cpu().numpy()
        return list(services.threads(CPUS).map(answer, outputs, files))

    return hw.task(name=name, models=[of], max_batch=MOST, cpus=CPUS, example=photographs)(run)


def photographs(count):
    """Return JPEGs to measure with."""
    return [services.photograph(number % services.MOST, *services.PHOTOGRAPH) for number in range(count)]


PHOTO, sized = services.PHOTOGRAPH, services.sized
upscaler = model("super-resolution-net", networks.Upscaler, {"width": 8, "blocks": 2})
segmenter = model("segmentation-net", networks.Segmenter, {"width": 8, "blocks": (1, 1, 1, 1)})
deblurrer = model("deblur-net", networks.Deblurrer, {"width": 8})
classifier = model("classification-net", networks.Classifier, {"side": 64, "width": 32, "blocks": 2, "heads": 2})
remover = model("background-removal-net", networks.Remover, {"scale": 8})
deep = model("depth-net", networks.Depth, {"side": 64, "width": 32, "blocks": 4, "heads": 2, "features": 16})

super_resolution = task("super-resolution", upscaler, services.THUMBNAIL, None, services.picture, centred=False)
segmentation = task("segmentation", segmenter, PHOTO, sized(576, 1024), services.class_map)
deblur = task("deblur", deblurrer, PHOTO, None, services.picture, centred=False)
classification = task("classification", classifier, PHOTO, sized(384, 384), services.labels)
background_removal = task("background-removal", remover, PHOTO, sized(1024, 1024), services.cut_out)
depth = task("depth", deep, PHOTO, sized(512, 512), services.depth_map)

graphs = [
    hw.graph("image-classification", super_resolution >> segmentation >> classification),
    hw.graph("depth-recognition", deblur >> super_resolution >> depth),
    hw.graph("background-elimination", super_resolution >> deblur >> background_removal),
    hw.graph(
        "expanded-classification", deblur >> super_resolution >> background_removal >> segmentation >> classification
    ),
]

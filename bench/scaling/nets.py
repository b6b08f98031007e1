"""Nets as their layers, in the order of the forward pass: the parameters of
each, tensor by tensor, and its multiply-adds for one sample."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    parameters: tuple[int, ...]
    multiply_adds: float


@dataclass(frozen=True)
class Net:
    name: str
    layers: tuple[Layer, ...]

    @property
    def parameters(self):
        return sum(sum(layer.parameters) for layer in self.layers)

    @property
    def tensors(self):
        return sum(len(layer.parameters) for layer in self.layers)

    @property
    def multiply_adds(self):
        return sum(layer.multiply_adds for layer in self.layers)


def convolution(inputs, outputs, kernel, side, groups=1, bias=False):
    """With batch norm after it unless it has a bias. kernel: its area; side:
    of the square that it computes."""
    weights = inputs // groups * outputs * kernel
    rest = (outputs,) if bias else (outputs, outputs)
    return Layer((weights, *rest), float(weights * side * side))


def linear(inputs, outputs, positions=1):
    return Layer((inputs * outputs, outputs),
                 float(inputs * outputs * positions))


def resnet(name, blocks, groups=1, group_width=64, side=56, classes=1000,
           first=convolution(3, 64, 49, 112)):
    """He et al., arXiv:1512.03385 (stride in the 3x3 convolution), and with
    groups Xie et al., arXiv:1611.05431. side: after the first layers."""
    layers, inputs = [first], 64
    for stage, count in enumerate(blocks):
        outputs = 256 << stage
        width = (group_width << stage) * groups
        for block in range(count):
            before = side
            if stage and block == 0:
                side //= 2
            layers += [convolution(inputs, width, 1, before),
                       convolution(width, width, 9, side, groups),
                       convolution(width, outputs, 1, side)]
            if block == 0:
                layers.append(convolution(inputs, outputs, 1, side))
            inputs = outputs
    return Net(name, (*layers, linear(inputs, classes)))


def vgg16():
    """Simonyan and Zisserman, arXiv:1409.1556, configuration D."""
    layers, inputs, side = [], 3, 224
    for count, outputs in ((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)):
        for _ in range(count):
            layers.append(convolution(inputs, outputs, 9, side, bias=True))
            inputs = outputs
        side //= 2
    return Net("vgg16", (*layers, linear(512 * 49, 4096), linear(4096, 4096),
                         linear(4096, 1000)))


def inception_branches(inputs, side, *branches):
    """A branch: (outputs, kernel area) of its convolutions, one by one."""
    layers = []
    for branch in branches:
        channels = inputs
        for outputs, kernel in branch:
            layers.append(convolution(channels, outputs, kernel, side))
            channels = outputs
    return layers


def inception_v3():
    """Szegedy et al., arXiv:1512.00567, without the auxiliary classifier; the
    sides are those of images of 299 x 299. A convolution with a stride that
    follows others in its branch is counted at the smaller side like them."""
    layers = [convolution(3, 32, 9, 149), convolution(32, 32, 9, 147),
              convolution(32, 64, 9, 147), convolution(64, 80, 1, 73),
              convolution(80, 192, 9, 71)]
    for inputs, pooled in ((192, 32), (256, 64), (288, 64)):
        layers += inception_branches(
            inputs, 35, [(64, 1)], [(48, 1), (64, 25)],
            [(64, 1), (96, 9), (96, 9)], [(pooled, 1)])
    layers += inception_branches(288, 17, [(384, 9)])
    layers += inception_branches(288, 35, [(64, 1), (96, 9)])
    layers += inception_branches(96, 17, [(96, 9)])
    for width in (128, 160, 160, 192):
        layers += inception_branches(
            768, 17, [(192, 1)], [(width, 1), (width, 7), (192, 7)],
            [(width, 1), (width, 7), (width, 7), (width, 7), (192, 7)],
            [(192, 1)])
    layers += inception_branches(
        768, 17, [(192, 1)], [(192, 1), (192, 7), (192, 7)])
    layers += inception_branches(192, 8, [(320, 9)])
    layers += inception_branches(192, 8, [(192, 9)])
    for inputs in (1280, 2048):
        layers += inception_branches(
            inputs, 8, [(320, 1)], [(384, 1), (384, 3)],
            [(448, 1), (384, 9), (384, 3)], [(192, 1)])
        layers += inception_branches(384, 8, [(384, 3)], [(384, 3)])
    return Net("inception_v3", (*layers, linear(2048, 1000)))


def transformer(name, count, width, tokens, before=(), after=()):
    """Vaswani et al., arXiv:1706.03762, with a norm before each half of a
    block and one tensor for queries, keys and values."""
    block = (Layer((width, width, 3 * width * width, 3 * width),
                   3.0 * width * width * tokens + 2.0 * width * tokens**2),
             linear(width, width, tokens),
             Layer((width, width, 4 * width * width, 4 * width),
                   4.0 * width * width * tokens),
             linear(4 * width, width, tokens))
    return Net(name, (*before, *block * count, *after))


def vit_h_14(classes):
    """Dosovitskiy et al., arXiv:2010.11929, as in torchvision; images of
    224 x 224."""
    width, patches = 1280, 16 * 16
    first = Layer((width, 3 * 14 * 14 * width, width, (patches + 1) * width),
                  3.0 * 14 * 14 * width * patches)
    return transformer("vit_h_14", 32, width, patches + 1, (first,),
                       (Layer((width, width), 0.0), linear(width, classes)))


def all_nets():
    nets = (resnet("resnet50", (3, 4, 6, 3)),
            resnet("resnet101", (3, 4, 23, 3)),
            resnet("resnext50_32x4d", (3, 4, 6, 3), 32, 4),
            resnet("resnext101_32x8d", (3, 4, 23, 3), 32, 8),
            vgg16(), inception_v3(), vit_h_14(classes=200),
            # Of docs/gpu-results.md: bench/nets.cpp.
            resnet("resnet50_64", (3, 4, 6, 3), side=64, classes=10,
                   first=convolution(3, 64, 9, 64)),
            transformer("transformer", 6, 1024, 256))
    return {net.name: net for net in nets}

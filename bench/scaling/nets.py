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


def resnet(name, blocks, groups=1, group_width=64):
    """He et al., arXiv:1512.03385 (stride in the 3x3 convolution), and with
    groups Xie et al., arXiv:1611.05431."""
    layers = [convolution(3, 64, 49, 112)]
    inputs, side = 64, 56
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
    return Net(name, (*layers, linear(inputs, 1000)))


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


def bert(name, count, hidden, tokens=128):
    """Devlin et al., arXiv:1810.04805, the encoder with its pooler. Scores of
    attention are counted with the layer's output."""
    embeddings = Layer((30522 * hidden, 512 * hidden, 2 * hidden, hidden,
                        hidden), 0.0)
    layers = [embeddings]
    for _ in range(count):
        attention = linear(hidden, hidden, tokens)
        scores = 2.0 * hidden * tokens * tokens
        layers += [attention, attention, attention,
                   Layer((hidden * hidden, hidden, hidden, hidden),
                         attention.multiply_adds + scores),
                   linear(hidden, 4 * hidden, tokens),
                   Layer((4 * hidden * hidden, hidden, hidden, hidden),
                         4.0 * hidden * hidden * tokens)]
    return Net(name, (*layers, linear(hidden, hidden)))


def all_nets():
    nets = (resnet("resnet50", (3, 4, 6, 3)),
            resnet("resnet101", (3, 4, 23, 3)),
            resnet("resnext50_32x4d", (3, 4, 6, 3), 32, 4),
            resnet("resnext101_32x8d", (3, 4, 23, 3), 32, 8),
            vgg16(), inception_v3(),
            bert("bert_base", 12, 768), bert("bert_large", 24, 1024))
    return {net.name: net for net in nets}

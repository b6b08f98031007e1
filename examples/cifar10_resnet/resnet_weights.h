#pragma once

#include "resnet.h"

#include <string>
#include <vector>

/// Puts the weights of the file at `path` into `net`: torchvision's, saved by
/// Python (`torch.save(model.state_dict(), path)`, or safetensors), or those of
/// another run of ours. A last layer for another number of classes is left out,
/// and so stays as it is; counts of batches, which old files lack, are too.
///
/// Returns the names of the parameters that were left out. Throws `c10::Error`
/// where the rest does not fit, by name, and then `net` has not changed. Not
/// collective.
std::vector<std::string> load_weights(const std::string& path, ResNet& net);

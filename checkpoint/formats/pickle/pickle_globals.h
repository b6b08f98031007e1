#pragma once

#include <c10/core/ScalarType.h>
#include <checkpoint/formats/pickle/pickle_value.h>

namespace ddp::detail {

/// What a name of Python's stands for.
enum class PickleMeaning {
  kOrderedDict,
  kCounter,
  kSize,
  kRebuildTensor,
  kRebuildTensorV2,
  kRebuildTensorV3,
  kRebuildParameter,
  kRebuildParameterWithState,
  kRebuildFromType,
  kArchive,
  kTypedList,
  kTensorType,
  kStorageType,
  kUntypedStorageType,
  kDtype,
};

struct PickleGlobal {
  std::string name; // with its module
  PickleMeaning meaning;
  c10::ScalarType dtype = c10::ScalarType::Undefined; // of the last kinds
};

/// The meaning of a name, out of the list of those that state_dicts need. Null
/// if it is not on it.
const PickleGlobal* find_global(
    const std::string& module,
    const std::string& name);

/// The name that Python has for the dtype, "float32"; empty if it has none.
std::string python_dtype(c10::ScalarType dtype);

/// The name of the storages that hold this dtype, "FloatStorage"; empty if they
/// are untyped.
std::string python_storage(c10::ScalarType dtype);

} // namespace ddp::detail

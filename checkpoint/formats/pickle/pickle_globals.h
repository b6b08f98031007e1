#pragma once

#include <c10/core/ScalarType.h>
#include <checkpoint/formats/pickle/pickle_value.h>

namespace ddp::detail {

/// The meaning of a Python name.
enum class PickleMeaning {
  kOrderedDict,
  kCounter,
  kSize,
  kRebuildTensor,
  kRebuildTensorV2,
  kRebuildTensorV3,
  kRebuildParameter,
  kRebuildFromType,
  kArchive,
  kTypedList,
  kTensorType,
  kStorageType,
  kUntypedStorageType,
  kDtype,
};

struct PickleGlobal {
  std::string name; // includes the module
  PickleMeaning meaning;
  c10::ScalarType dtype = c10::ScalarType::Undefined; // last three
};

/// Looks up a name in the list of names that state dicts need. Returns null if
/// the name is not on the list.
const PickleGlobal* find_global(
    const std::string& module,
    const std::string& name);

/// Python's name of the dtype, such as "float32"; empty if there is none.
std::string python_dtype(c10::ScalarType dtype);

/// The name of the storage class for this dtype, such as "FloatStorage"; empty
/// if storages of this dtype are untyped.
std::string python_storage(c10::ScalarType dtype);

} // namespace ddp::detail

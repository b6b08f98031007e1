#include <checkpoint/formats/pickle/pickle_globals.h>

#include <algorithm>
#include <iterator>
#include <map>

namespace ddp::detail {
namespace {

// Dtypes with and without a typed storage in Python.
constexpr c10::ScalarType kTyped[] = {
    c10::kDouble,
    c10::kFloat,
    c10::kHalf,
    c10::kBFloat16,
    c10::kLong,
    c10::kInt,
    c10::kShort,
    c10::kChar,
    c10::kByte,
    c10::kBool,
    c10::kComplexFloat,
    c10::kComplexDouble};
constexpr c10::ScalarType kUntyped[] = {
    c10::kComplexHalf,
    c10::kUInt16,
    c10::kUInt32,
    c10::kUInt64,
    c10::kFloat8_e5m2,
    c10::kFloat8_e4m3fn,
    c10::kFloat8_e5m2fnuz,
    c10::kFloat8_e4m3fnuz,
    c10::kFloat8_e8m0fnu};

template <typename List>
bool has(const List& list, c10::ScalarType dtype) {
  return std::find(std::begin(list), std::end(list), dtype) != std::end(list);
}

// The class that torch::serialize::OutputArchive writes. Inner archives are
// named __torch__.___torch_mangle_0.Module and so on.
constexpr const char* kArchive = "__torch__.Module";
constexpr const char* kInnerArchive = "__torch__.___torch_mangle_";

using Globals = std::map<std::string, PickleGlobal>;

Globals make_globals() {
  Globals globals;
  const auto add = [&](const std::string& name,
                       PickleMeaning meaning,
                       c10::ScalarType dtype = c10::ScalarType::Undefined) {
    globals.emplace(name, PickleGlobal{name, meaning, dtype});
  };
  add("collections.OrderedDict", PickleMeaning::kOrderedDict);
  add("collections.Counter", PickleMeaning::kCounter);
  add("torch.Size", PickleMeaning::kSize);
  add("torch._utils._rebuild_tensor", PickleMeaning::kRebuildTensor);
  add("torch._utils._rebuild_tensor_v2", PickleMeaning::kRebuildTensorV2);
  add("torch._utils._rebuild_tensor_v3", PickleMeaning::kRebuildTensorV3);
  add("torch._utils._rebuild_parameter", PickleMeaning::kRebuildParameter);
  add("torch._utils._rebuild_parameter_with_state",
      PickleMeaning::kRebuildParameter);
  add("torch._tensor._rebuild_from_type_v2", PickleMeaning::kRebuildFromType);
  for (const std::string type : {"int", "double", "bool", "tensor"}) {
    add("torch.jit._pickle.build_" + type + "list", PickleMeaning::kTypedList);
  }
  add("torch.jit._pickle.restore_type_tag", PickleMeaning::kTypedList);
  add(kArchive, PickleMeaning::kArchive);
  add("torch.Tensor", PickleMeaning::kTensorType);
  add("torch.nn.parameter.Parameter", PickleMeaning::kTensorType);
  // The modules and names of these functions differ between versions of
  // Python's torch.
  for (const std::string name :
       {"torch.storage.UntypedStorage",
        "torch.storage._UntypedStorage",
        "torch.UntypedStorage",
        "torch._UntypedStorage"}) {
    add(name, PickleMeaning::kUntypedStorageType);
  }
  for (const auto dtype : kTyped) {
    add("torch." + python_dtype(dtype), PickleMeaning::kDtype, dtype);
    for (const std::string module : {"torch.", "torch.cuda."}) {
      add(module + python_storage(dtype), PickleMeaning::kStorageType, dtype);
    }
  }
  for (const auto dtype : kUntyped) {
    add("torch." + python_dtype(dtype), PickleMeaning::kDtype, dtype);
  }
  return globals;
}

} // namespace

const PickleGlobal* find_global(
    const std::string& module,
    const std::string& name) {
  static const Globals globals = make_globals();
  const bool inner_archive =
      module.rfind(kInnerArchive, 0) == 0 && name == "Module";
  const auto found =
      globals.find(inner_archive ? kArchive : module + "." + name);
  return found == globals.end() ? nullptr : &found->second;
}

std::string python_dtype(c10::ScalarType dtype) {
  return std::string(
      has(kTyped, dtype) || has(kUntyped, dtype)
          ? c10::getDtypeNames(dtype).first
          : "");
}

std::string python_storage(c10::ScalarType dtype) {
  return has(kTyped, dtype) ? c10::toString(dtype) + std::string("Storage")
                            : "";
}

} // namespace ddp::detail

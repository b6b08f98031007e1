#include <checkpoint/formats/pickle/pickle_globals.h>

#include <array>
#include <map>

namespace ddp::detail {
namespace {

struct DtypeNames {
  c10::ScalarType dtype;
  const char* name;
  const char* storage; // null: torch.save writes untyped storages
};

constexpr std::array<DtypeNames, 21> kDtypes{{
    {c10::kDouble, "float64", "DoubleStorage"},
    {c10::kFloat, "float32", "FloatStorage"},
    {c10::kHalf, "float16", "HalfStorage"},
    {c10::kBFloat16, "bfloat16", "BFloat16Storage"},
    {c10::kLong, "int64", "LongStorage"},
    {c10::kInt, "int32", "IntStorage"},
    {c10::kShort, "int16", "ShortStorage"},
    {c10::kChar, "int8", "CharStorage"},
    {c10::kByte, "uint8", "ByteStorage"},
    {c10::kBool, "bool", "BoolStorage"},
    {c10::kComplexFloat, "complex64", "ComplexFloatStorage"},
    {c10::kComplexDouble, "complex128", "ComplexDoubleStorage"},
    {c10::kComplexHalf, "complex32", nullptr},
    {c10::kUInt16, "uint16", nullptr},
    {c10::kUInt32, "uint32", nullptr},
    {c10::kUInt64, "uint64", nullptr},
    {c10::kFloat8_e5m2, "float8_e5m2", nullptr},
    {c10::kFloat8_e4m3fn, "float8_e4m3fn", nullptr},
    {c10::kFloat8_e5m2fnuz, "float8_e5m2fnuz", nullptr},
    {c10::kFloat8_e4m3fnuz, "float8_e4m3fnuz", nullptr},
    {c10::kFloat8_e8m0fnu, "float8_e8m0fnu", nullptr},
}};

// What a torch::serialize::OutputArchive writes; one in another is called
// __torch__.___torch_mangle_0.Module and so on.
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
      PickleMeaning::kRebuildParameterWithState);
  add("torch._tensor._rebuild_from_type_v2", PickleMeaning::kRebuildFromType);
  for (const std::string type : {"int", "double", "bool", "tensor"}) {
    add("torch.jit._pickle.build_" + type + "list", PickleMeaning::kTypedList);
  }
  add("torch.jit._pickle.restore_type_tag", PickleMeaning::kTypedList);
  add(kArchive, PickleMeaning::kArchive);
  add("torch.Tensor", PickleMeaning::kTensorType);
  add("torch.nn.parameter.Parameter", PickleMeaning::kTensorType);
  // Where they were, and what they were called, changed.
  for (const std::string name :
       {"torch.storage.UntypedStorage",
        "torch.storage._UntypedStorage",
        "torch.UntypedStorage",
        "torch._UntypedStorage"}) {
    add(name, PickleMeaning::kUntypedStorageType);
  }
  for (const auto& names : kDtypes) {
    add(std::string("torch.") + names.name, PickleMeaning::kDtype, names.dtype);
    if (names.storage != nullptr) {
      for (const std::string module : {"torch.", "torch.cuda."}) {
        add(module + names.storage, PickleMeaning::kStorageType, names.dtype);
      }
    }
  }
  return globals;
}

const DtypeNames* names_of(c10::ScalarType dtype) {
  for (const auto& names : kDtypes) {
    if (names.dtype == dtype) {
      return &names;
    }
  }
  return nullptr;
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
  const auto* names = names_of(dtype);
  return names == nullptr ? "" : names->name;
}

std::string python_storage(c10::ScalarType dtype) {
  const auto* names = names_of(dtype);
  return names == nullptr || names->storage == nullptr ? "" : names->storage;
}

} // namespace ddp::detail
